"""What of the GPU path one GPU can show: `bash lab/run.sh long.gpu_check`."""
