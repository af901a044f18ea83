"""A launch script for GPUs on a machine that seems to have eight."""
