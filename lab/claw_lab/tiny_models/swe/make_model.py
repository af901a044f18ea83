"""Creates the tiny model of this track: `bash lab/run.sh tiny_models.swe.make_model FOLDER`."""

from __future__ import annotations

from claw_lab.tiny_models.command import command
from claw_lab.tiny_models.recipe import Recipe
from claw_lab.tiny_models.swe.demonstrations import CALL, PRINTED, demonstration

RECIPE = Recipe(
    vocabulary=480, hidden=64, context=512, steps=1300, batch_tokens=2400, corpus=2000, phrases=CALL + PRINTED
)

if __name__ == "__main__":
    command("claw_lab.tiny_models.swe.make_model", __doc__, demonstration, RECIPE)
