"""Kills each process with `kill -9` while people talk; measures lost turns, refused connections and the seconds until
answers come again.

`bash lab/run.sh benchmarks.faults.faults` starts the loop in a temporary folder, kills each role once and prints one
JSON line for each kill; `--kills 50` makes 50 kills, half of them at the moments of fault_points.py, the others at
random times. `--load 20` keeps 20 other processes busy. `--before FOLDER` first measures another checkout in the same
way. The last line compares the answers that clients received with the store, by id and by text. `--notes FOLDER`
stores the times and prints the table of fault_table.py. Exit status 1: a target was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from claw_lab.benchmarks.faults.availability_probe import AvailabilityProbe
from claw_lab.benchmarks.faults.fault_checks import (
    BEHIND,
    PATIENCE_S,
    ROLES,
    SUPERVISORS,
    compare,
    live_version,
    pid_of,
    until,
)
from claw_lab.benchmarks.faults.fault_points import POINTS
from claw_lab.benchmarks.faults.fault_table import bar_of, note, read
from claw_lab.benchmarks.faults.fault_table import table as table_of_bars
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.real_loop import TINY_SCRIPT, Loop, running_loop
from openclaw_test.loop.scripted_people import People, talk_until

PEOPLE = 4


async def kill(
    loop: Loop, role: str, point: str | None, people: People, rng: random.Random, probe: AvailabilityProbe
) -> dict[str, object]:
    """Kills one process at a point, or at a random time; returns after answers and training continue."""
    came = point is not None and await POINTS[point](loop)
    if point is None:
        await asyncio.sleep(rng.uniform(0, 3))
    pids = {other: pid_of(loop, other) for other in ROLES}
    victim = pids[role]
    if victim is None:
        raise RuntimeError(f"no {role} to kill")
    failures = len(people.failures)
    os.kill(victim, signal.SIGKILL)
    killed_at = time.monotonic()
    await until(lambda: any(one.begun > killed_at for one in people.seen[-200:]), "answer after the kill")
    serving_s = next(one.ended for one in people.seen if one.begun > killed_at) - killed_at
    await until(lambda: probe.back_after(killed_at) is not None, "health after the kill")
    await until(lambda: pid_of(loop, role) not in (None, victim), f"new {role}")
    back_s = time.monotonic() - killed_at
    version = live_version(loop)
    await until(lambda: live_version(loop) > version, "new weights after the kill")
    return {
        "killed": role,
        "at": point if came else "random",
        "health_again_s": round(probe.back_after(killed_at) or 0.0, 2),
        "serving_again_s": round(serving_s, 2),
        "refused": probe.refused_since(killed_at),
        "back_s": round(back_s, 2),
        "next_version_live_s": round(time.monotonic() - killed_at, 2),
        "failed_requests": len(people.failures) - failures,
        "served_by_the_same": all(pid_of(loop, other) == pids[other] for other in ("gateway", "engine")),
    }


def plan(kills: int, roles: tuple[str, ...], rng: random.Random) -> list[tuple[str, str | None]]:
    """Returns (role, point) of each kill: all roles equally often; every other kill of a role is at a point."""
    behind = [name for name in POINTS if name != "turn claimed"]
    planned: list[tuple[str, str | None]] = []
    for index in range(kills):
        role, again = roles[index % len(roles)], index // len(roles)
        names = ["turn claimed"] if role == "judge" else behind
        planned.append((role, rng.choice(names) if again % 2 else None))
    return planned


def misses(result: dict[str, object], load: int) -> bool:
    """Returns whether a kill misses its target."""
    moved = result["killed"] in BEHIND and (result["failed_requests"] or not result["served_by_the_same"])
    return bool(moved or result["refused"]) or float(str(result["serving_again_s"])) > bar_of(
        str(result["killed"]), load
    )


def table(results: list[dict[str, object]]) -> str:
    """Returns the median and the maximum times of each role as a Markdown table."""
    lines = [
        "| killed | kills | health again, s | answers again, s | refused | failed requests |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for role in dict.fromkeys(str(result["killed"]) for result in results):
        own = [result for result in results if result["killed"] == role]
        cells = [role, str(len(own))]
        for name in ("health_again_s", "serving_again_s"):
            seconds = [float(str(result[name])) for result in own]
            cells.append(f"{statistics.median(seconds):.2f}; {max(seconds):.2f}")
        cells += [
            str(sum(int(str(result[name])) for result in own)) for name in ("refused", "failed_requests")
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keeps `processes` processes busy while the block runs."""
    words = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(words) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def keep(results: list[dict[str, object]], load: int, folder: Path) -> None:
    """Stores the times of each role next to other results, and prints the table of targets."""
    roles = read(folder, notes_name(load)).get("roles", {})
    for role in dict.fromkeys(str(result["killed"]) for result in results):
        own = [result for result in results if result["killed"] == role]
        seconds = [float(str(result["serving_again_s"])) for result in own]
        refused = sum(int(str(result["refused"])) for result in own)
        roles[role] = {"kills": len(own), "median_s": statistics.median(seconds), "longest_s": max(seconds)}
        roles[role] |= {"refused": refused}
    note(folder, notes_name(load), {"load": load, "roles": roles})
    print(table_of_bars(folder))


def notes_name(load: int) -> str:
    """Returns the name under which results at a load are stored."""
    return f"faults-{load:02d}"


async def run(
    loop: Loop, kills: list[tuple[str, str | None]], seed: int, load: int, notes: Path | None
) -> tuple[int, dict[str, int]]:
    """Prints each kill and the comparison; returns the number of kills that missed a target, and the result of
    `compare`."""
    people, done, rng = People(), asyncio.Event(), random.Random(seed)
    results = []
    async with ChatClient(loop.url) as client:
        talking = [asyncio.create_task(talk_until(done, client, seed + n, people)) for n in range(PEOPLE)]
        await until(
            lambda: len(people.seen) >= 2 * PEOPLE and live_version(loop) > 0, "first answers and weights"
        )
        with AvailabilityProbe(loop.port) as probe:
            for role, point in kills:
                results.append(await kill(loop, role, point, people, rng, probe))
                print(json.dumps(results[-1]), flush=True)
        done.set()
        await asyncio.gather(*talking)
    print(table(results))
    counts = compare(loop, people)
    if notes is not None:
        keep(results, load, notes)
    missed = sum(misses(result, load) for result in results)
    slowest = max(float(str(result["serving_again_s"])) for result in results)
    summary = {"kills": len(results), "by_role": Counter(str(result["killed"]) for result in results)}
    summary |= {"at_named_points": sum(result["at"] != "random" for result in results)}
    print(json.dumps(summary | {"slowest_serving_again_s": slowest, "kills_over_a_bar": missed} | counts))
    return missed, counts


def wrong(counts: dict[str, int]) -> bool:
    """Returns whether a comparison contains a failure."""
    names = ("lost", "twice", "another_text", "wrong_state")
    return any(count for name, count in counts.items() if name.endswith(names))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("roles", nargs="*", help=f"whom to kill, of {', '.join(ROLES)}; default: every role")
    parser.add_argument("--kills", type=int, help="total number of kills; default: one per role")
    parser.add_argument("--load", type=int, default=0, help="number of busy processes running in parallel")
    parser.add_argument("--before", type=Path, help="another checkout to measure first")
    parser.add_argument("--notes", type=Path, help="folder of results for the table of targets")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random times")
    args = parser.parse_args()
    roles = tuple(args.roles) or ROLES
    if not set(roles) <= set(ROLES):
        parser.error(f"unknown role among {', '.join(roles)}")
    kills = args.kills or len(roles)
    if args.before is not None:
        print(f"before: {args.before}")
        without = tuple(role for role in roles if role not in SUPERVISORS)
        script = args.before / TINY_SCRIPT.relative_to(TINY_SCRIPT.parents[1])
        measure(without, kills, args.load, script, args.notes, args.seed)
        print("now:")
    sys.exit(0 if measure(roles, kills, args.load, TINY_SCRIPT, args.notes, args.seed) else 1)


def measure(
    roles: tuple[str, ...], kills: int, load: int, script: Path, notes: Path | None, seed: int = 0
) -> bool:
    """Makes `kills` kills on a loop that this script starts. Returns False if a target was missed."""
    planned = plan(kills, roles, random.Random(seed))
    with (
        tempfile.TemporaryDirectory() as folder,
        running_loop(Path(folder) / "run", script=script, start_s=PATIENCE_S, env={"PYTHONPATH": ""}) as loop,
    ):
        with busy(load):
            missed, counts = asyncio.run(run(loop, planned, seed, load, notes))
    return not missed and not wrong(counts)


if __name__ == "__main__":
    main()
