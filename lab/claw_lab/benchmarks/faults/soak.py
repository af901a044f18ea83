"""Runs a thousand idle people and 64 who talk without a pause, for ten minutes; measures errors and the memory of
each process.

`bash lab/run.sh benchmarks.faults.soak` starts the loop in a temporary folder, with training, and prints one JSON
line. Idle people send one message at the beginning and continue their conversation at the end. Memory is the unique
set size of each process in MiB: the median of the last fifth over that of the first fifth after the warm-up. A day at
a low rate, with a line of results so far every ten minutes:

`bash lab/run.sh benchmarks.faults.soak --hours 24 --idle 16 --busy 2 --reading 10 --warm-answers 200`
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.real_loop import Loop, running_loop
from openclaw_test.loop.scripted_people import People, talk_until

LOOK_EVERY_S = 5.0
RAY = ("raylet", "gcs_server")
OPENING = {"role": "user", "content": "Mia has 12 shells and finds 5 more. How many now?"}
AT_A_TIME = 32
WARM_ANSWERS = 5_000
TELL_EVERY_S = 600.0


def processes_of(loop: Loop) -> Iterator[tuple[str, psutil.Process]]:
    """Yields (role and pid, process) of all running processes, including Ray's own."""
    for entry in httpx.get(f"{loop.url}/admin/processes", timeout=30.0).json():
        process = psutil.Process(entry["pid"])
        yield f"{entry['role']} {entry['pid']}", process
        if entry["role"] == "driver":
            for child in process.children(recursive=True):
                if child.name() in RAY:
                    yield f"{child.name()} {child.pid}", child


async def watch(loop: Loop, done: asyncio.Event, memory: dict[str, list[float]]) -> None:
    """Records the memory of each process periodically."""
    while not done.is_set():
        for name, process in await asyncio.to_thread(lambda: list(processes_of(loop))):
            with contextlib.suppress(psutil.NoSuchProcess):
                memory[name].append(process.memory_full_info().uss / 2**20)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), LOOK_EVERY_S)


class SilentOne:
    """A session that sends one message, waits, and sends another."""

    def __init__(self, client: ChatClient, number: int) -> None:
        self._client = client
        self._scope = f"silent-{number}"
        self._messages = [OPENING]

    async def speak(self) -> str | None:
        """Sends a message; returns the failure, or None."""
        answer = await self._client.chat(self._messages, session_id=self._scope, max_tokens=40)
        self._messages = [
            *self._messages,
            {"role": "assistant", "content": answer.text},
            {"role": "user", "content": "Too much formatting, write it in normal sentences."},
        ]
        return answer.error


async def all_speak(silent: list[SilentOne]) -> list[str]:
    """Lets each person send one message; returns the failures."""
    room = asyncio.Semaphore(AT_A_TIME)

    async def one(who: SilentOne) -> str | None:
        async with room:
            return await who.speak()

    return [error for error in await asyncio.gather(*map(one, silent)) if error is not None]


async def soak(loop: Loop, args: argparse.Namespace) -> dict[str, object]:
    people, memory, done = People(), defaultdict[str, list[float]](list), asyncio.Event()
    async with ChatClient(loop.url, connections=args.idle) as quiet, ChatClient(loop.url) as busy:
        silent = [SilentOne(quiet, number) for number in range(args.idle)]
        errors = await all_speak(silent)
        talking = [
            asyncio.create_task(talk_until(done, busy, seed, people, args.reading))
            for seed in range(args.busy)
        ]
        await asyncio.sleep(60 * args.warm_up)
        while len(people.seen) < args.warm_answers:  # a busy machine takes longer until all caches are full
            await asyncio.sleep(1)
        before = loop.status()
        watching = asyncio.create_task(watch(loop, done, memory))
        await pass_time(60 * args.minutes, people)
        errors += await all_speak(silent)
        after = loop.status()
        done.set()
        await asyncio.gather(watching, *talking)
    return {
        "minutes": args.minutes,
        "idle_sessions": args.idle,
        "busy_sessions": args.busy,
        "answers": len(people.seen),
        "versions": after["weight_version"] - before["weight_version"],
        "errors": len(errors) + len(people.failures),
        "first_errors": [*errors, *(what for _, what in people.failures)][:3],
        "idle_sessions_continued": continued(loop),
    } | growth(memory)


async def pass_time(seconds: float, people: People) -> None:
    """Waits, and prints the state at intervals."""
    began = time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(left, TELL_EVERY_S))
        hours = (time.monotonic() - began) / 3600
        so_far = {"hours": round(hours, 2), "answers": len(people.seen), "failures": len(people.failures)}
        print(json.dumps(so_far), file=sys.stderr, flush=True)


def continued(loop: Loop) -> int:
    """Returns the number of sessions whose second turn was recognised as the continuation of the first."""
    rows = loop.turns("session_id, parent_id")
    return sum(row["session_id"].startswith("silent-") and row["parent_id"] is not None for row in rows)


def growth(memory: dict[str, list[float]]) -> dict[str, object]:
    """Returns {process: [MiB in the first fifth, in the last, growth]}, each the median of a fifth, and the processes
    that did not run all the time."""
    looks = max(map(len, memory.values()))
    by_name: dict[str, list[float]] = {}
    fifths: dict[str, list[float]] = {}
    for name, values in sorted(memory.items()):
        fifth = max(len(values) // 5, 1)
        first, last = statistics.median(values[:fifth]), statistics.median(values[-fifth:])
        role = name.split()[0]
        by_name[role] = [round(first, 1), round(last, 1), round(last / first - 1, 4)]
        parts = [values[fifth * i : fifth * (i + 1)] for i in range(5)]
        fifths[role] = [round(statistics.median(part), 1) for part in parts if part]
    restarted = [name for name, values in memory.items() if len(values) < looks - 1]
    return {"memory_mib": by_name, "fifths_mib": fifths, "restarted": restarted}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of the measurement")
    parser.add_argument("--hours", type=float, help="hours of the measurement, instead of minutes")
    parser.add_argument(
        "--warm-up", type=float, default=2.0, help="minutes of conversations before the measurement"
    )
    parser.add_argument(
        "--warm-answers", type=int, default=WARM_ANSWERS, help="answers before the measurement"
    )
    parser.add_argument(
        "--reading", type=float, default=0.0, help="seconds between an answer and the next message"
    )
    parser.add_argument("--idle", type=int, default=1000, help="number of idle sessions")
    parser.add_argument("--busy", type=int, default=64, help="number of sessions that talk continuously")
    args = parser.parse_args()
    args.minutes = args.minutes if args.hours is None else 60 * args.hours
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for the gateway too, which inherits it
    with tempfile.TemporaryDirectory() as folder, running_loop(Path(folder) / "run") as loop:
        began = time.monotonic()
        result = asyncio.run(soak(loop, args))
    print(json.dumps(result | {"seconds": round(time.monotonic() - began), "cores": os.cpu_count()}))


if __name__ == "__main__":
    main()
