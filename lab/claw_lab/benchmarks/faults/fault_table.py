"""Renders the table of promises about faults from the results of faults.py, many_kills.py, fault_scenarios.py and
fuzzing.py.

`bash lab/run.sh benchmarks.faults.fault_table FOLDER` prints the table of a folder with results; `fault_bars.py
FOLDER` runs all four programs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

KILLS, REQUESTS = 1000, 100_000
QUIET_LOAD = 4
"""Number of busy processes from which a machine does not count as quiet."""


def note(folder: Path, name: str, result: dict[str, Any]) -> None:
    """Stores the last result of a program."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result))


def bar_of(role: str, load: int) -> float:
    """Returns the target: seconds until answers come again after one kill."""
    quiet, loaded = {"gateway": (1.0, 5.0), "engine": (1.5, 8.0)}.get(role, (15.0, 15.0))
    return quiet if load < QUIET_LOAD else loaded


def misses(role: str, own: dict[str, Any], load: int) -> bool:
    """Returns whether the results of a role's kills miss its target."""
    return bool(own["refused"] or own["longest_s"] > bar_of(role, load))


def table(folder: Path) -> str:
    """Returns the table in Markdown; programs that have not run have no row."""
    rows = [
        row
        for path in sorted(folder.glob("faults-*.json"))
        for row in _fault_rows(json.loads(path.read_text()))
    ]
    rows += _kill_rows(read(folder, "many_kills")) + _scenario_rows(read(folder, "fault_scenarios"))
    fuzz = read(folder, "fuzzing")
    if fuzz:
        growth = fuzz["growth"]
        stays = f"{growth['tasks']} tasks, {growth['files']} files, {growth['mib']:.0f} MiB"
        holds = fuzz["requests"] >= REQUESTS and not fuzz["failed"] and not stays_behind(growth)
        what = f"{fuzz['requests']} fuzzed requests: 5xx and hangs; growth"
        rows.append((what, f"{REQUESTS:,}: 0; none", f"{fuzz['failed']}; {stays}", holds))
    lines = ["| what | bar | measured | holds |", "|---|---|---|---|"]
    return "\n".join(
        lines + [f"| {what} | {bar} | {measured} | {_word(holds)} |" for what, bar, measured, holds in rows]
    )


Row = tuple[str, str, str, bool | None]
"""Name, target, measured value, and whether the target is met; None if there is no target or the machine could not
run the part."""


def _word(holds: bool | None) -> str:
    return {True: "yes", False: "**no**", None: "-"}[holds]


def stays_behind(growth: dict[str, float]) -> bool:
    """Returns whether fuzzed requests left resources behind. Connections and threads of pools may vary, and caches of
    the store fill up."""
    return bool(growth["running"] or growth["tasks"] > 8 or growth["files"] > 16 or growth["mib"] > 48)


def _fault_rows(results: dict[str, Any]) -> list[Row]:
    """Returns one row for each role, from the results of faults.py at one load."""
    rows = []
    for role, own in results["roles"].items():
        what = f"{role} killed, {results['load']} busy processes beside it: answers again; refused"
        measured = f"{_seconds(own)}; {own['refused']} ({own['kills']} kills)"
        bar = bar_of(role, results["load"])
        rows.append((what, f"{bar:g} s; 0", measured, not misses(role, own, results["load"])))
    return rows


def _kill_rows(kills: dict[str, Any]) -> list[Row]:
    """Returns the rows of many_kills.py."""
    if not kills:
        return []
    names = ("lost", "doubled", "altered", "trained_twice", "orphans")
    counts = [kills.get(name) for name in names]
    what = f"{kills['kills']} kills ({kills['answers_seen']} answers seen): lost, doubled, altered, "
    what += "trained twice, orphans"
    holds = kills["kills"] >= KILLS and not any(counts)
    rows: list[Row] = [(what, f"{KILLS:,}: 0, 0, 0, 0, 0", ", ".join(map(str, counts)), holds)]
    for kind, own in kills.get("kinds", {}).items():
        measured = f"{_seconds(own)}; {own['refused']}"
        rows.append((f"{kind} killed: answers again; refused", "-; 0", measured, not own["refused"]))
    return rows


def _seconds(own: dict[str, Any]) -> str:
    return f"{own['median_s']:.2f} s, longest {own['longest_s']:.2f} s"


MAY_FAIL = {
    "disk full": ("not_stored", "store_error"),
    "256 descriptors": ("ReadError", "RemoteProtocolError"),
}
"""Prefixes of the errors that a scenario may cause: it rejects turns that cannot be stored, and closes connections beyond
the limit."""


def is_well(name: str, result: dict[str, Any]) -> bool:
    """Returns whether a scenario lost no answer and caused only permitted errors."""
    failed = [kind for kind in result.get("failed", ()) if not kind.startswith(MAY_FAIL.get(name, ("-",)))]
    wrong = any(result.get(what) for what in ("lost", "altered", "broken", "refused"))
    right = result.get("sound", True) and result.get("undisturbed", True) and result.get("refusal", "yes")
    return bool(right) and not failed and not wrong


def _scenario_rows(results: dict[str, dict[str, Any]]) -> list[Row]:
    """Returns the rows of fault_scenarios.py; scenarios that could not run on this machine are marked."""
    rows = []
    for name, own in results.items():
        if "skipped" in own:
            measured = f"not done: {own['skipped']}"
        elif "streams" in own:
            measured = f"{own['broken']} of {own['streams']}; {own['refused']}"
        elif "status" in own:
            measured = f"exit status {own['status']}, the first goes on: {own['undisturbed']}"
        else:
            failed = ", ".join(f"{count} {kind.strip(': ')}" for kind, count in own["failed"].items())
            also = f"; {own['lost_with_the_log']} lost with the log" if "lost_with_the_log" in own else ""
            measured = f"{own['lost']} of {own['seen']}, {own['altered']}; {failed or 'none'}{also}"
        rows.append(
            (
                f"{name}: {_ASKED.get(name, 'lost, altered; requests that failed')}",
                _BARS.get(name, "0, 0; none"),
                measured,
                None if "skipped" in own else is_well(name, own),
            )
        )
    return rows


_ASKED = {
    "planned restart": "broken streams; refused",
    "two launchers": "what the second one does",
}
_BARS = {
    "planned restart": "0; 0",
    "disk full": "0, 0; refused while it is full",
    "256 descriptors": "0, 0; closed beyond them",
    "log cut": "0, 0 afterwards; none",
    "two launchers": "exit status 2",
}


def read(folder: Path, name: str) -> dict[str, Any]:
    """Returns the stored result of a program; empty if it has not run."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
