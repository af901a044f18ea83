"""Persists the metrics of a rollout until its version is live, so that a driver crash does not lose the row."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path

from claw_base.files import write_text

FILE = "untold_metrics.json"
# number of bytes at the end of the metrics file in which a row is searched
_TAIL = 1 << 16


class PendingMetrics:
    """Stores the metrics of at most one rollout, in the run folder."""

    def __init__(self, run_dir: Path, metrics_file: str) -> None:
        self.path, self.rows = run_dir / FILE, run_dir / metrics_file

    def keep(self, step: int, metrics: Mapping[str, float]) -> None:
        write_text(self.path, row(step, metrics))

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)

    def left(self) -> tuple[int, dict[str, float]] | None:
        """Returns rollout id and metrics that an earlier driver did not log; None if the file is missing or
        incomplete."""
        try:
            kept = json.loads(self.path.read_text())
            step = int(kept.pop("step"))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        kept.pop("time", None)
        return step, {name: math.nan if value is None else float(value) for name, value in kept.items()}

    def add_row(self, step: int, metrics: Mapping[str, float]) -> None:
        """Appends a row in one separate write, which is safe while the driver also writes."""
        with self.rows.open("ab", buffering=0) as file:
            file.write(row(step, metrics).encode())

    def has_row(self, step: int) -> bool:
        """Returns whether the metrics file contains a rollout's training metrics."""
        try:
            with self.rows.open("rb") as file:
                file.seek(max(0, self.rows.stat().st_size - _TAIL))
                lines = file.read().splitlines()
        except OSError:
            return False
        return any(_is_row(line, step) for line in lines)


def row(step: int, metrics: Mapping[str, float]) -> str:
    """Formats `{"step", "time", NAME: value, ...}` with a line end; values that are not finite become null."""
    values = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    return json.dumps({"step": step, "time": time.time(), **values}) + "\n"


def _is_row(line: bytes, step: int) -> bool:
    try:
        row = json.loads(line)
    except ValueError:  # the searched tail starts in the middle of a line
        return False
    return isinstance(row, dict) and row.get("step") == step and "perf/train_time" in row
