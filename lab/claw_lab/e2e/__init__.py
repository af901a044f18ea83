"""The real OpenClaw against the real gateway."""
