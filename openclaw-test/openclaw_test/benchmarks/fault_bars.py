"""The whole table of what is promised when something dies, in one command.

`python openclaw-test/openclaw_test/benchmarks/fault_bars.py FOLDER` kills each role of a loop, gateway and engine also
beside busy processes, then any of them in pairs, triples and again at once, brings the hardships about, sends fuzzed
requests, and prints the table. FOLDER keeps the notes and the run: the same command goes on until `--kills` and
`--requests`. `--short` does some minutes of it; the tests have its parts. Exit status 1: something was lost, or a bar was
missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from openclaw_test.benchmarks import fault_table, faults, fuzzing, hardships, many_kills
from openclaw_test.loop.real_loop import TINY_SCRIPT

LOAD = 20


def measured(folder: Path, args: argparse.Namespace) -> bool:
    """Runs everything; False when something was lost, or a bar was missed."""
    front = ("gateway", "engine")
    roles = front if args.short else faults.ROLES
    parts = [lambda: faults.measure(roles, args.each * len(roles), 0, TINY_SCRIPT, folder)]
    if not args.short:
        parts.append(lambda: faults.measure(front, args.each * len(front), LOAD, TINY_SCRIPT, folder))
    parts.append(lambda: many_kills.is_well(many_kills.go_on(folder, args.kills, args.minutes)))
    parts.append(lambda: sent_well(fuzzing.go_on(folder, args.requests, args.minutes)))
    parts.append(lambda: endured(folder))
    well = [done(part) for part in parts]
    return all(well)


def done(part: Callable[[], bool]) -> bool:
    """Whether a part did well. One that came to no end does not take the table of the others along."""
    try:
        return part()
    except TimeoutError as error:
        print(f"not measured to its end: {error}", file=sys.stderr, flush=True)
        return False


def sent_well(odd: dict[str, Any]) -> bool:
    return not odd["failed"] and not fault_table.stays_behind(odd["growth"])


def endured(folder: Path) -> bool:
    """All hardships; noted for the table."""
    found = hardships.endure_all(tuple(hardships.HARDSHIPS))
    fault_table.note(folder, "hardships", found)
    return all(fault_table.is_well(name, result) for name, result in found.items())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the run and the notes are kept")
    parser.add_argument("--each", type=int, default=2, help="kills of each role alone")
    parser.add_argument(
        "--kills", type=int, default=fault_table.KILLS, help="kills of any role, in all calls together"
    )
    parser.add_argument(
        "--requests", type=int, default=fault_table.REQUESTS, help="fuzzed ones, in all calls together"
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="of the kills, and of the fuzzed requests")
    parser.add_argument("--short", action="store_true", help="only gateway and engine alone, without load")
    args = parser.parse_args()
    folder = args.folder.resolve()
    well = measured(folder, args)
    print(fault_table.table(folder))
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
