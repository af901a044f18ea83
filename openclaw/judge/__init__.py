"""Judging: scores and hints for turns, derived from their next state."""
