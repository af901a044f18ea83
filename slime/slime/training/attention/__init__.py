"""Attention over packed sequences: which kernel, and the linear attention of Qwen3.5."""
