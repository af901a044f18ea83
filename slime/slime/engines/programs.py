"""How an engine's own Python is called, and which programs it finds by their names."""

from __future__ import annotations

import os
from collections.abc import Mapping


def child_command(python: str, child: str) -> list[str]:
    """Runs a program of ours in that Python, where the names of its neighbours hide no package (-P)."""
    return [python, "-P", child]


def child_environment(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with the PATH of an engine that runs in this Python."""
    return {**environ, "PATH": search_path(python, environ)}


def search_path(python: str, environ: Mapping[str, str]) -> str:
    """PATH of an engine that runs in this Python: what pip put beside it comes first, as where its environment is active.
    Kernels are built by `ninja`, called by that name. The Python itself may be a link to one that has no ninja beside it.
    """
    before = environ.get("PATH", os.defpath)
    beside = os.path.dirname(python)
    return os.path.abspath(beside) + os.pathsep + before if beside else before
