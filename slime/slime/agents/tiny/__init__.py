"""Tiny checkpoints that know the format of an agent and little else, made from nothing for RL on a CPU."""

from slime.agents.tiny.command import command
from slime.agents.tiny.dialogue import Answered, Dialogue
from slime.agents.tiny.recipe import Recipe, make_checkpoint
from slime.agents.tiny.sight import Vision

__all__ = ["Answered", "Dialogue", "Recipe", "Vision", "command", "make_checkpoint"]
