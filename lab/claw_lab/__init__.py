"""Programs that measure this project, and that make its tiny models and their data."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The root folder of the repository."""
MODEL = ROOT / "openclaw-test" / "tiny_claw" / "model"
FOLDERS = (
    "", "base", "slime", "openclaw-rl", "openclaw-opd", "openclaw-combine", "toolcall-rl", "terminal-rl", "swe-rl",
    "gui-rl", "openclaw-tinker", "openclaw-fireworks", "launch", "openclaw-test", "lab",
)  # fmt: skip
"""Folders that hold packages, as `launch/env.sh` puts them on the path."""


def environment(**more: str) -> dict[str, str]:
    """Returns the environment variables of a process that imports packages of this repository, for example `python -m
    claw_lab.NAME`."""
    folders = (str(ROOT / folder) for folder in FOLDERS)
    paths = [*folders, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}
