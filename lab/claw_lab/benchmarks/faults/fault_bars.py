"""Measures all promises about faults and prints the table, with one command.

`bash lab/run.sh benchmarks.faults.fault_bars FOLDER` kills each role of a loop, gateway and engine also next to busy
processes, runs the fault scenarios, kills any roles up to four at a time and again at once, sends fuzzed requests,
and prints the table. FOLDER keeps the results and the run: the same command measures the missing results, and
continues up to `--kills` and `--requests`; Ctrl-C loses only the current part. `--short` runs some minutes of it; the
tests run its parts. Exit status 1: data was lost, or a target was missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from claw_lab.benchmarks.faults import fault_scenarios, fault_table, faults, fuzzing, many_kills
from openclaw_test.loop.real_loop import TINY_SCRIPT

LOAD = 20
AT_A_TIME = 3


def measured(folder: Path, args: argparse.Namespace) -> bool:
    """Measures the results that the folder lacks; returns False if data was lost or a target was missed so far."""
    front = ("gateway", "engine")
    parts = [
        partial(killed, folder, some, 0, args.each) for some in batched(front if args.short else faults.ROLES)
    ]
    if not args.short:
        parts.append(partial(killed, folder, front, LOAD, args.each))
    parts += [partial(scenario_is_well, folder, name) for name in fault_scenarios.SCENARIOS]
    parts.append(lambda: many_kills.is_well(many_kills.resume(folder, args.kills, args.minutes)))
    parts.append(lambda: sent_well(fuzzing.resume(folder, args.requests, args.minutes)))
    well = [done(part) for part in parts]
    return all(well)


def batched(roles: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Splits roles into groups; each group is killed in a loop of its own, so that an interruption keeps the results
    of other groups."""
    return [roles[at : at + AT_A_TIME] for at in range(0, len(roles), AT_A_TIME)]


def killed(folder: Path, roles: tuple[str, ...], load: int, each: int) -> bool:
    """Kills each role `each` times, unless its results are stored; returns whether the targets are met."""
    noted = fault_table.read(folder, faults.notes_name(load)).get("roles", {})
    missing = tuple(role for role in roles if noted.get(role, {}).get("kills", 0) < each)
    if missing:
        return faults.measure(missing, each * len(missing), load, TINY_SCRIPT, folder)
    return not any(fault_table.misses(role, noted[role], load) for role in roles)


def done(part: Callable[[], bool]) -> bool:
    """Returns whether a part succeeded. An exception in one part does not prevent the table of the others."""
    try:
        return part()
    except TimeoutError as error:
        print(f"not measured to its end: {error}", file=sys.stderr, flush=True)
        return False


def sent_well(odd: dict[str, Any]) -> bool:
    return not odd["failed"] and not fault_table.stays_behind(odd["growth"])


def scenario_is_well(folder: Path, name: str) -> bool:
    """Runs a fault scenario, unless its result is stored. Returns whether it lost nothing."""
    noted = fault_table.read(folder, "fault_scenarios")
    if name not in noted:
        noted |= fault_scenarios.run_all((name,))
        fault_table.note(folder, "fault_scenarios", noted)
    return fault_table.is_well(name, noted[name])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of the run and the results")
    parser.add_argument("--each", type=int, default=2, help="kills of each single role")
    parser.add_argument(
        "--kills", type=int, default=fault_table.KILLS, help="total kills of any role, over all calls"
    )
    parser.add_argument(
        "--requests", type=int, default=fault_table.REQUESTS, help="total fuzzed requests, over all calls"
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="minutes of kills, and of fuzzed requests")
    parser.add_argument(
        "--short", action="store_true", help="kill only gateway and engine, singly and without load"
    )
    args = parser.parse_args()
    folder = args.folder.resolve()
    well = measured(folder, args)
    print(fault_table.table(folder))
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
