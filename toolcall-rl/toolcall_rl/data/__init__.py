"""Readers of problems (DAPO-Math, AIME and similar) and of ReTool's conversations."""
