"""Arithmetic for a tiny model: the problems, the demonstrations, and the tasks of a run on a laptop."""
