"""Runs the real OpenClaw with the real gateway."""
