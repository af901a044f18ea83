"""mini-swe-agent as the loop of an episode: its agent, its prompts and its formats, over our engine and our sandbox."""

from swe_rl.mini.environment import MiniSweEnvironment, TextFormat

__all__ = ["MiniSweEnvironment", "TextFormat"]
