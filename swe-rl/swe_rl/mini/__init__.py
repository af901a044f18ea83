"""Runs mini-swe-agent as the loop of an episode: its agent, prompts and formats, with our engine and sandbox."""

from swe_rl.mini.environment import MiniSweEnvironment, TextFormat

__all__ = ["MiniSweEnvironment", "TextFormat"]
