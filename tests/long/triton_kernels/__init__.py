"""What a machine without a GPU can show of linear attention's Triton kernels: `bash tests/long/triton_kernels.sh`."""
