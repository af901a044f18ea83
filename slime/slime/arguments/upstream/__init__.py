"""Unsupported flags of slime and Megatron-LM, each with the reason."""
