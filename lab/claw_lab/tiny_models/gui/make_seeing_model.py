"""Creates the tiny vision model of this track: `bash lab/run.sh tiny_models.gui.make_seeing_model OUT`."""

from __future__ import annotations

from claw_lab.tiny_models.command import command
from claw_lab.tiny_models.gui.pointing import PHRASES, demonstration
from claw_lab.tiny_models.recipe import Recipe
from claw_lab.tiny_models.sight import Vision

RECIPE = Recipe(
    vocabulary=420,
    hidden=64,
    layers=3,
    context=512,
    steps=900,
    batch_tokens=2000,
    rate=3e-3,
    corpus=300,
    phrases=PHRASES,
    vision=Vision(hidden=64, depth=2, pixels=128 * 96),
)

if __name__ == "__main__":
    command("claw_lab.tiny_models.gui.make_seeing_model", __doc__, demonstration, RECIPE)
