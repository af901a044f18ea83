"""Makes the tiny model of this track from nothing: `python -m swe_rl.tiny.make_model FOLDER`."""

from __future__ import annotations

from slime.agents.tiny import Recipe, command
from swe_rl.tiny.demonstrations import CALL, PRINTED, demonstration

RECIPE = Recipe(
    vocabulary=480, hidden=64, context=512, steps=1300, batch_tokens=2400, corpus=2000, phrases=CALL + PRINTED
)

if __name__ == "__main__":
    command("swe_rl.tiny.make_model", __doc__, demonstration, RECIPE)
