"""What a machine without a GPU shows of linear attention's Triton kernels: `bash lab/claw_lab/long/triton_kernels.sh`."""
