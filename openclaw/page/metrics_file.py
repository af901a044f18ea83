"""The curves of a run, read from its metrics.jsonl as it grows."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import orjson

MOST_ROWS = 2000
"""Kept in memory; beyond that every second one of the older half goes."""
READ_BYTES = 64 << 20

Row = dict[str, float]


class MetricsFile:
    """Rows of `{"step", "time", NAME: number}`; those that were read are not read again. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._begin_anew()

    def rows(self) -> list[Row]:
        """All rows, oldest first, thinned out where there are many; [] while there is no file."""
        with self._lock:
            try:
                self._read()
            except OSError:
                self._begin_anew()
            return list(self._rows)

    def _begin_anew(self) -> None:
        self._rows: list[Row] = []
        self._offset = 0

    def _read(self) -> None:
        if self._path.stat().st_size < self._offset:
            self._begin_anew()
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(READ_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            row = _row(line)
            if row is not None:
                self._rows.append(row)
        while len(self._rows) > MOST_ROWS:
            half = len(self._rows) // 2
            self._rows[:half] = self._rows[:half:2]


def _row(line: bytes) -> Row | None:
    """The numbers of a line; None for one that is none, as a crash may leave it."""
    try:
        found: Any = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict) or "step" not in found:
        return None
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
