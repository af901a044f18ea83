"""Measures the trainer, its planner and its environments: time, memory, agreement with other projects."""
