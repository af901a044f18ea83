"""Creates the tiny model of this track: `bash lab/run.sh tiny_models.gui.make_model OUT`."""

from __future__ import annotations

from claw_lab.tiny_models.command import command
from claw_lab.tiny_models.gui.demonstrations import PHRASES, demonstration
from claw_lab.tiny_models.recipe import Recipe

RECIPE = Recipe(
    vocabulary=540,
    hidden=64,
    layers=3,
    context=512,
    steps=1600,
    batch_tokens=2000,
    rate=2e-3,
    corpus=2000,
    phrases=PHRASES,
)

if __name__ == "__main__":
    command("claw_lab.tiny_models.gui.make_model", __doc__, demonstration, RECIPE)
