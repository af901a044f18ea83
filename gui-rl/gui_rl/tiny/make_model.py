"""Makes the tiny model of this track from nothing: `python -m gui_rl.tiny.make_model OUT`."""

from __future__ import annotations

from gui_rl.tiny.demonstrations import PHRASES, demonstration
from slime.agents.tiny import Recipe, command

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
    command("gui_rl.tiny.make_model", __doc__, demonstration, RECIPE)
