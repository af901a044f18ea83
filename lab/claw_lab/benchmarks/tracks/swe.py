"""Measures the episodes per hour of a scripted agent, several at a time, and what they leave behind.

bash lab/run.sh benchmarks.tracks.swe [--instances FILE] [--seconds 60 | --episodes N] [--parallel 8]

The agent looks for the function, reads the file, repairs it, imports it, and submits; the hidden tests score it. It
prints one JSON line; `left` counts processes, mounts and workspaces of the episodes that remain at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from claw_lab import ROOT
from slime.agents import Action, Task, ToolCall
from slime.errors import ClawError
from swe_rl.environment import SUBMIT, SweEnvironment
from swe_rl.instance import Instance, read_instances
from swe_rl.repository import source_of

INSTANCES = ROOT / "swe-rl" / "instances" / "factory.jsonl"


def commands(instance: Instance) -> Iterator[str]:
    """Yields the commands of the agent. Raises ClawError for an instance of another source, whose repair is
    unknown."""
    bug = instance.bug
    if bug is None:
        raise ClawError(f"{instance.instance_id} is not of the factory, so no script repairs it")
    name = bug.function.rpartition(".")[2]
    yield f"grep -rn {shlex.quote(f'def {name}')} --include=*.py ."
    yield f"sed -n {max(bug.line - 20, 1)},{bug.line + 20}p {shlex.quote(bug.file)}"
    edit = (
        "import sys; p, n, c, a, b = sys.argv[1:]; s = open(p, newline='').read().splitlines(True); n = int(n) - 1; "
        "c = int(c); s[n] = s[n][:c] + b + s[n][c + len(a):]; open(p, 'w', newline='').write(''.join(s))"
    )
    words = [edit, bug.file, str(bug.line), str(bug.column), bug.after, bug.before]
    yield f"python3 -c {shlex.join(words)}"
    yield f"git diff --stat; python3 -m py_compile {shlex.quote(bug.file)}"
    yield f"echo {SUBMIT}"


async def episode(instance: Instance, threads: Executor | None = None) -> bool:
    """Plays an episode; returns whether it was solved. Raises as the environment does."""
    environment = SweEnvironment(threads=threads)
    try:
        await environment.reset(Task("", metadata={"instance": instance.to_row()}))
        for command in commands(instance):
            await environment.step(Action("", (ToolCall("bash", {"command": command}),)))
        return (await environment.evaluate()).solved
    finally:
        await environment.close()


async def played(
    instances: list[Instance], seconds: float, episodes: int | None, parallel: int
) -> list[bool]:
    """Plays episodes until the time or the number is reached; running episodes are finished."""
    until, turns = time.monotonic() + seconds, itertools.cycle(instances)
    solved: list[bool] = []
    begun, threads = itertools.count(), ThreadPoolExecutor(parallel)

    async def seat() -> None:
        while next(begun) < episodes if episodes is not None else time.monotonic() < until:
            solved.append(await episode(next(turns), threads))

    await asyncio.gather(*(seat() for _ in range(parallel)))
    return solved


def left(folder: Path) -> dict[str, int]:
    """Counts the leftovers of episodes in `folder`: processes that name it, mounts in it, and workspaces."""
    processes = 0
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            processes += str(folder).encode() in cmdline.read_bytes()
    mounts = sum(str(folder) in line for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return {
        "processes": processes,
        "mounts": mounts,
        "workspaces": sum(one.is_dir() for one in folder.glob("slime-workspaces-*/*")),
    }


def measured(
    instances: list[Instance], seconds: float, episodes: int | None, parallel: int
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="swe-benchmark-") as made:
        folder = Path(made)
        folder.chmod(0o711)
        tempfile.tempdir = made
        asyncio.run(episode(instances[0]))  # fetches pytest, warms files
        began = time.monotonic()
        solved = asyncio.run(played(instances, seconds, episodes, parallel))
        took = time.monotonic() - began
        tempfile.tempdir = None
        return {
            "episodes": len(solved),
            "solved": sum(solved),
            "parallel": parallel,
            "seconds": round(took, 1),
            "episodes_an_hour": round(len(solved) * 3600 / took),
            "left": left(folder),
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bash lab/run.sh benchmarks.tracks.swe",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--instances",
        type=Path,
        default=INSTANCES,
        help="file of factory instances (default: the shipped ones)",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float, default=60.0)
    length.add_argument("--episodes", type=int)
    parser.add_argument("--parallel", type=int, default=8)
    args = parser.parse_args()
    try:
        instances = list(read_instances(args.instances))
        for repository in sorted({one.repository for one in instances}):
            source_of(repository)
        print(json.dumps(measured(instances, args.seconds, args.episodes, args.parallel)))
    except (ClawError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
