"""Makes the tiny model of this track from nothing: `python -m toolcall_rl.tiny.make_model runs/tiny-toolcall-model`."""

from __future__ import annotations

from slime.agents.tiny import Recipe, command
from toolcall_rl.tiny.demonstrations import demonstration

if __name__ == "__main__":
    command("toolcall_rl.tiny.make_model", __doc__, demonstration, Recipe(), threads=2)
