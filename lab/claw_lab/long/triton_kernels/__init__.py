"""Checks the Triton kernels of linear attention on a machine without a GPU: `bash
lab/claw_lab/long/triton_kernels.sh`."""
