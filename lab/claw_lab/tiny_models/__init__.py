"""Tiny checkpoints that know the format of an agent and little else, made from nothing for RL on a CPU.

Importing this package loads no torch: dry runs of scripts make tasks with it.
"""
