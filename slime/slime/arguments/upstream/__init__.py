"""Flags of slime and Megatron-LM that are not taken over, each with the reason."""
