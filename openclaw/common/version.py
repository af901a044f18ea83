"""`--version`, in the same words everywhere."""

from __future__ import annotations

import argparse

from openclaw import __version__

VERSION = f"OpenClaw-RL {__version__}"


def add_version(parser: argparse.ArgumentParser) -> None:
    """The flag that prints the version and ends."""
    parser.add_argument("--version", action="version", version=VERSION)
