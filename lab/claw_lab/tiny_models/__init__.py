"""Tiny checkpoints that know the format of an agent and little else, created for RL on a CPU.

Importing this package loads no torch, since dry runs of scripts create tasks with it.
"""
