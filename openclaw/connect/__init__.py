"""Configures OpenClaw or another client to use an OpenClaw-RL server: `python -m openclaw.connect`."""
