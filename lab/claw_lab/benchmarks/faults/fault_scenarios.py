"""Runs fault scenarios of one machine while four people use a gateway; counts failed requests and lost turns.

`bash lab/run.sh benchmarks.faults.fault_scenarios [NAME ...]` prints one JSON line for each scenario; `--notes
FOLDER` stores them for fault_table.py. Each scenario starts its own gateway in a temporary folder, with an engine
that samples nothing. `failed`: failed requests by the error that they got; `refused`: refused connections. Exit
status 1: an answer that a client received completely is lost or changed, or a request failed that must not. Scenarios
of disks and of the read-only folder need root, those of PostgreSQL an installed server; otherwise they are `skipped`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from claw_lab.benchmarks.faults import fault_table
from claw_lab.benchmarks.faults.gateway_process import CannotHere
from claw_lab.benchmarks.faults.scenario_kinds import SCENARIOS, Result


def run_scenario(name: str) -> Result:
    """Runs one scenario in its own folder. Returns its result; {"skipped": reason} if it cannot run here."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="scenario") as folder:
        try:
            result = asyncio.run(SCENARIOS[name](Path(folder)))
        except CannotHere as reason:
            return {"skipped": str(reason)}
    return result | {"seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--notes", type=Path, help="folder of results for the table of targets")
    args = parser.parse_args()
    if not set(args.names) <= set(SCENARIOS):
        parser.error(f"unknown scenario among {', '.join(args.names)}")
    results = run_all(tuple(args.names) or tuple(SCENARIOS))
    if args.notes is not None:
        fault_table.note(args.notes, "fault_scenarios", results)
    sys.exit(0 if all(fault_table.is_well(name, result) for name, result in results.items()) else 1)


def run_all(names: tuple[str, ...]) -> dict[str, Result]:
    """Runs scenarios one after another and prints one line for each. Returns their results by name."""
    results = {}
    for name in names:
        results[name] = run_scenario(name)
        print(json.dumps({"scenario": name, **results[name]}), flush=True)
    return results


if __name__ == "__main__":
    main()
