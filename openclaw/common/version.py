"""The flag `--version` of all programs."""

from __future__ import annotations

import argparse

from openclaw import __version__

VERSION = f"OpenClaw-RL {__version__}"


def add_version(parser: argparse.ArgumentParser) -> None:
    """Adds the flag that prints the version and exits."""
    parser.add_argument("--version", action="version", version=VERSION)
