"""What a machine may do to a gateway while four people talk: what became of their requests, and what was lost.

`bash lab/run.sh benchmarks.faults.hardships [NAME ...]` prints one JSON line a hardship; `--notes FOLDER`
keeps them for the table of fault_table.py. Each starts a gateway of its own in a temporary folder, in front of an engine
that samples nothing. `failed`: how requests failed, each with an error that names the reason; `refused`: connections.
Exit status 1: an answer whose end a client saw is lost or altered, or something failed that must not. Disks and the
read-only folder need root, PostgreSQL an installed server; without: `skipped`."""

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
from claw_lab.benchmarks.faults.hardship_kinds import HARDSHIPS, Result


def endure(name: str) -> Result:
    """One hardship in a folder of its own; {"skipped": reason} if it cannot be had."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hardship") as folder:
        try:
            result = asyncio.run(HARDSHIPS[name](Path(folder)))
        except CannotHere as reason:
            return {"skipped": str(reason)}
    return result | {"seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(HARDSHIPS)}; default: all")
    parser.add_argument("--notes", type=Path, help="folder in which results are kept for the table of bars")
    args = parser.parse_args()
    if not set(args.names) <= set(HARDSHIPS):
        parser.error(f"unknown hardship among {', '.join(args.names)}")
    found = endure_all(tuple(args.names) or tuple(HARDSHIPS))
    if args.notes is not None:
        fault_table.note(args.notes, "hardships", found)
    sys.exit(0 if all(fault_table.is_well(name, result) for name, result in found.items()) else 1)


def endure_all(names: tuple[str, ...]) -> dict[str, Result]:
    """One after another; prints a line each."""
    found = {}
    for name in names:
        found[name] = endure(name)
        print(json.dumps({"hardship": name, **found[name]}), flush=True)
    return found


if __name__ == "__main__":
    main()
