"""Tiny checkpoints that know the format of an agent and little else, made from nothing for RL on a CPU."""

from slime.agents.tiny.command import command
from slime.agents.tiny.dialogue import Answered, Dialogue
from slime.agents.tiny.recipe import Recipe, make_checkpoint

__all__ = ["Answered", "Dialogue", "Recipe", "command", "make_checkpoint"]
