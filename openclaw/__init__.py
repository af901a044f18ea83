"""OpenClaw-RL's runtime: gateway, sessions, rollout store and judge. It imports no trainer and no torch."""
