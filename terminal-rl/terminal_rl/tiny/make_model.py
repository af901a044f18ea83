"""Makes the tiny model of this track from nothing: `python -m terminal_rl.tiny.make_model OUT`."""

from __future__ import annotations

from slime.agents.tiny import Recipe, command
from terminal_rl.tiny.demonstrations import CALL, demonstration

RECIPE = Recipe(
    vocabulary=512, hidden=64, layers=3, context=512, steps=600, batch_tokens=2400, corpus=2000, phrases=CALL
)

if __name__ == "__main__":
    command("terminal_rl.tiny.make_model", __doc__, demonstration, RECIPE)
