"""Connects OpenClaw, or another client, with an OpenClaw-RL server: python -m openclaw.connect"""
