"""Creates the tiny model of this track: `bash lab/run.sh tiny_models.toolcall.make_model FOLDER`."""

from __future__ import annotations

from claw_lab.tiny_models.command import command
from claw_lab.tiny_models.recipe import Recipe
from claw_lab.tiny_models.toolcall.demonstrations import demonstration

if __name__ == "__main__":
    command("claw_lab.tiny_models.toolcall.make_model", __doc__, demonstration, Recipe(), threads=2)
