"""Makes the tiny model of this track from nothing: `python -m gui_rl.tiny.make_model OUT`."""

from __future__ import annotations

from gui_rl.tiny.demonstrations import demonstration
from slime.agents.tiny import Recipe, command

RECIPE = Recipe(vocabulary=640, context=1024, steps=900, batch_tokens=1500, corpus=1500)

if __name__ == "__main__":
    command("gui_rl.tiny.make_model", __doc__, demonstration, RECIPE)
