"""Tiny checkpoints that know the format of an agent and little else, made from nothing for RL on a CPU."""

from claw_lab.tiny_models.command import command
from claw_lab.tiny_models.dialogue import Answered, Dialogue
from claw_lab.tiny_models.recipe import Recipe, make_checkpoint
from claw_lab.tiny_models.sight import Vision

__all__ = ["Answered", "Dialogue", "Recipe", "Vision", "command", "make_checkpoint"]
