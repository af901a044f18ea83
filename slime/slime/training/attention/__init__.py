"""Attention over packed sequences: the choice of the kernel, and the linear attention of Qwen3.5."""
