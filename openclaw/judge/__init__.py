"""Judging: scores and hints for turns, from their next state."""
