"""Runs a launch script for GPUs on a machine with eight simulated GPUs."""
