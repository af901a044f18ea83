"""The trainer, its planner and its environments: time, memory, agreement with others."""
