"""Readers of problems (DAPO-Math, AIME and their like) and of ReTool's conversations."""
