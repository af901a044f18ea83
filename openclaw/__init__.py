"""OpenClaw-RL's runtime: gateway, sessions, rollout store and judge. It imports no trainer and no torch."""

__version__ = "0.2.0"
