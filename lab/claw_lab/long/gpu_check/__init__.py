"""Checks the GPU path as far as one GPU can: `bash lab/run.sh long.gpu_check`."""
