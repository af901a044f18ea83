"""The table of what is promised when something dies, filled with what faults.py, many_kills.py and fuzzing.py noted.

`python openclaw-test/openclaw_test/benchmarks/fault_table.py FOLDER` prints it for the folder that was given to them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

QUIET_LOAD = 4
"""Busy processes from which on a machine is not quiet."""


def note(folder: Path, name: str, result: dict[str, Any]) -> None:
    """Keeps the last result of a program."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result))


def bar_of(role: str, load: int) -> float:
    """Seconds until answers must come again after one kill."""
    quiet, loaded = {"gateway": (1.0, 5.0), "engine": (1.5, 8.0)}.get(role, (15.0, 15.0))
    return quiet if load < QUIET_LOAD else loaded


def table(folder: Path) -> str:
    """As Markdown; a program that has not run has no row."""
    lines = ["| what | bar | measured |", "|---|---|---|"]
    for path in sorted(folder.glob("faults-*.json")):
        found = json.loads(path.read_text())
        for role, own in found["roles"].items():
            what = f"{role} killed, {found['load']} busy processes beside it: answers again; refused"
            seconds = f"{own['median_s']:.2f} s, longest {own['longest_s']:.2f} s"
            measured = f"{seconds}; {own['refused']} ({own['kills']} kills)"
            lines.append(f"| {what} | {bar_of(role, found['load']):g} s; 0 | {measured} |")
    kills = _read(folder, "many_kills")
    if kills:
        what = "kills: lost, doubled, trained twice, orphans"
        measured = ", ".join(str(kills[name]) for name in ("lost", "doubled", "trained_twice", "orphans"))
        lines.append(f"| {kills['kills']} {what} | 1,000: 0, 0, 0, 0 | {measured} |")
    fuzz = _read(folder, "fuzzing")
    if fuzz:
        measured = f"{fuzz['failed']}; {fuzz['growth']['tasks']} tasks, {fuzz['growth']['mib']:.0f} MiB"
        what = f"{fuzz['requests']} fuzzed requests: 5xx and hangs; growth"
        lines.append(f"| {what} | 100,000: 0; none | {measured} |")
    return "\n".join(lines)


def _read(folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
