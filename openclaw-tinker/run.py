"""Serve locally, sample and train at Tinker: `python openclaw-tinker/run.py --method rl --model-path FOLDER`.

`--help` lists flags and variables; `--dry-run` starts nothing. Details: README.md.
"""

from __future__ import annotations

import sys
from pathlib import Path


def run() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launch"))
    from rented_run.paths import put_on_path

    put_on_path()
    from openclaw_tinker.settings import TINKER
    from rented_run.main import main

    return main(TINKER, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
