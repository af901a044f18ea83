"""What of the GPU path one GPU can show: `python -m tests.long.gpu_check`."""
