"""Creates the tiny model of this track: `bash lab/run.sh tiny_models.terminal.make_model OUT`."""

from __future__ import annotations

from claw_lab.tiny_models.command import command
from claw_lab.tiny_models.recipe import Recipe
from claw_lab.tiny_models.terminal.demonstrations import CALL, demonstration

RECIPE = Recipe(
    vocabulary=512, hidden=64, layers=3, context=512, steps=600, batch_tokens=2400, corpus=2000, phrases=CALL
)

if __name__ == "__main__":
    command("claw_lab.tiny_models.terminal.make_model", __doc__, demonstration, RECIPE)
