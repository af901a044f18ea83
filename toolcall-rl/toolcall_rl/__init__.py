"""Reasoning with tools: mathematics with a Python interpreter, after ReTool (Feng et al. 2025, arXiv:2504.11536)."""
