"""Starts an embedded engine for a benchmark, without a run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from claw_lab import environment


@contextmanager
def engine_of(model_path: str | Path, *flags: str) -> Iterator[str]:
    """Serves a model folder on a free port until the block ends.

    Args:
        flags: of `python -m slime.engines.launch --backend embedded`.

    Yields:
        The engine's URL.

    Raises:
        SystemExit: the engine did not start; it has printed the reason.
    """
    command = [sys.executable, "-m", "slime.engines.launch", "--backend", "embedded"]
    process = subprocess.Popen(
        [*command, "--model-path", str(model_path), "--port", "0", *flags],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the engine did not start")
        yield str(json.loads(line)["url"])
    finally:
        process.terminate()
        process.wait()
