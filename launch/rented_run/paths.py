"""Sets the import path of this repository's packages, for a run and for the processes that it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "", "slime", "launch", "openclaw-rl", "openclaw-opd", "openclaw-combine", "openclaw-tinker", "openclaw-fireworks",
    "openclaw-test",
)  # fmt: skip


def put_on_path() -> None:
    """Adds the packages to the import path of this process and its children."""
    paths = [str(ROOT / folder) for folder in FOLDERS]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
