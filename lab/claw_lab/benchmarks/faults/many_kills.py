"""Makes a thousand kills in several runs: kills processes with `kill -9`, one to four at a time and repeatedly, while
people talk; compares all completely received answers with the store, by id.

`bash lab/run.sh benchmarks.faults.many_kills FOLDER` starts the loop in FOLDER/run, kills for `--minutes`, stops the
loop, looks for remaining processes, compares, and prints one JSON line over all runs so far. The same command
continues after the last run, up to `--kills`. Exit status 1: data was lost, duplicated, trained twice, or a process
was left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
import sqlite3
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from claw_lab.benchmarks.faults import fault_table
from claw_lab.benchmarks.faults.availability_probe import AvailabilityProbe
from claw_lab.benchmarks.faults.fault_checks import PATIENCE_S, TRAINED_TWICE, WRONG_STATE, pid_of, until
from claw_lab.benchmarks.faults.fault_points import number
from claw_lab.benchmarks.faults.kills import KillBatch, kill_batches, summary
from openclaw.store.rows import unpack_json
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.real_loop import Loop, running_loop
from openclaw_test.loop.scripted_people import People, talk_until

WEIGHTS = {
    "gateway": 8, "engine": 8, "gateway supervisor": 4, "engine supervisor": 4, "judge": 4, "buffer": 2, "trainer": 2,
    "driver": 0.25, "raylet": 0.25, "gcs": 0.25,
}  # fmt: skip
"""Relative frequency of each role among those that run. The last three also end the driver: twenty seconds a kill."""
AT_ONCE = (1, 1, 2, 2, 3, 4)
"""Sizes of a batch; one is drawn."""
AGAIN = 0.6
"""Probability that the successors are killed too, within half a second; the same for their successors."""
MOST_ROUNDS = 5
PEOPLE = 4
TRAINED = "SELECT count(*) FROM weight_version"
"""Counts versions, including those that the gate rejected."""
ENDED_S = 20.0
"""Seconds after the stop from which a running process counts as left behind."""


def kill_roles(loop: Loop, roles: list[str]) -> list[str]:
    """Kills the running processes of these roles; returns the roles that were killed."""
    killed = []
    for role in roles:
        pid = pid_of(loop, role)
        with contextlib.suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                killed.append(role)
    return killed


async def kill_batch(loop: Loop, people: People, probe: AvailabilityProbe, rng: random.Random) -> KillBatch:
    """Kills one batch at a random time; returns when answers come again. Raises TimeoutError."""
    await asyncio.sleep(rng.uniform(0.0, 0.4))
    while not (running := [role for role in WEIGHTS if pid_of(loop, role) is not None]):
        await asyncio.sleep(0.1)
    drawn = rng.choices(running, [WEIGHTS[role] for role in running], k=rng.choice(AT_ONCE))
    began = time.monotonic()
    roles = kill_roles(loop, sorted(set(drawn)))
    for _ in range(MOST_ROUNDS - 1):
        if rng.random() > AGAIN:
            break
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        roles += kill_roles(loop, sorted(set(drawn)))
    killed_at = time.monotonic()
    await until(lambda: any(one.begun > killed_at for one in people.seen[-200:]), "answer after the kill")
    await until(lambda: probe.back_after(killed_at) is not None, "health after the kill")
    answers = min(one.ended for one in people.seen[-200:] if one.begun > killed_at) - killed_at
    health = probe.back_after(killed_at) or 0.0
    return KillBatch(roles, round(answers, 2), round(health, 3), probe.refused_since(began))


async def piece(loop: Loop, folder: Path, kills: int, minutes: float, seed: int) -> None:
    """Kills batches until `kills` kills or `minutes` minutes; records answers and batches as they come."""
    people, done, rng = People(), asyncio.Event(), random.Random(seed)
    notebook = SeenNotes(folder / "seen.jsonl", people)
    end, count = time.monotonic() + 60 * minutes, 0
    async with ChatClient(loop.url) as client:
        talking = [
            asyncio.create_task(talk_until(done, client, 1000 * seed + n, people)) for n in range(PEOPLE)
        ]
        await until(lambda: len(people.seen) >= PEOPLE, "first answers")
        with AvailabilityProbe(loop.port) as probe:
            while count < kills and time.monotonic() < end:
                batch = await kill_batch(loop, people, probe, rng)
                count += len(batch.roles)
                notebook.write()
                note(folder / "kills.jsonl", [asdict(batch)])
        done.set()
        await asyncio.gather(*talking)
    notebook.write()
    steps = number(loop, TRAINED)
    async with ChatClient(loop.url) as client:
        done = asyncio.Event()
        talking = [asyncio.create_task(talk_until(done, client, seed, people)) for _ in range(PEOPLE)]
        await until(lambda: number(loop, TRAINED) > steps, "training after the kills")
        done.set()
        await asyncio.gather(*talking)
    notebook.write()


class SeenNotes:
    """Records the answers that clients receive as they come, so that an interrupted part can be compared too."""

    def __init__(self, path: Path, people: People) -> None:
        self._path = path
        self._people = people
        self._written = 0

    def write(self) -> None:
        new = self._people.seen[self._written :]
        self._written += len(new)
        note(self._path, [[one.completion_id, digest(one.text)] for one in new])


def note(path: Path, lines: list[Any]) -> None:
    with open(path, "a") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def left_behind(run_dir: Path) -> list[str]:
    """Returns the processes that still run some seconds after the end of the run and name its folder on the command
    line or in the environment."""
    deadline = time.monotonic() + ENDED_S
    while (processes := [*_processes_of(run_dir)]) and time.monotonic() < deadline:
        time.sleep(0.5)
    return processes


def _processes_of(run_dir: Path) -> list[str]:
    processes, name = [], str(run_dir)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            words = " ".join([*process.cmdline(), process.environ().get("RUN_DIR", "")])
            if process.pid != os.getpid() and name in words and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(f"{process.pid} {words[:200]}")
    return processes


def compare(loop: Loop, folder: Path) -> dict[str, int]:
    """Compares the answers that clients received, in all parts, with the store."""
    rows = answers_stored(loop)
    stored = dict(rows)
    seen = dict(json.loads(line) for line in (folder / "seen.jsonl").read_text().splitlines())
    return {
        "answers_seen": len(seen),
        "lost": sum(completion not in stored for completion in seen),
        "doubled": len(rows) - len(stored),
        "altered": sum(
            completion in stored and digest(stored[completion]) != text for completion, text in seen.items()
        ),
        "samples_trained": number(loop, "SELECT count(DISTINCT sample_id) FROM training"),
        "trained_twice": number(loop, TRAINED_TWICE),
        "samples_in_a_wrong_state": number(loop, WRONG_STATE),
    }


def answers_stored(loop: Loop) -> list[tuple[str, str]]:
    """Returns (completion id, text) of each stored turn."""
    uri = f"file:{loop.run_dir}/buffer/buffer.db?mode=ro"
    query = "SELECT completion_id, response_message FROM turn JOIN turn_body ON turn_id = id"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
        return [(name, unpack_json(body)["content"] or "") for name, body in database.execute(query)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of the run and the results")
    parser.add_argument("--kills", type=int, default=1000, help="total kills, over all parts")
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="minutes of this part, without start and stop"
    )
    args = parser.parse_args()
    result = resume(args.folder.resolve(), args.kills, args.minutes)
    print(json.dumps(result))
    sys.exit(0 if is_well(result) else 1)


def resume(folder: Path, kills: int, minutes: float) -> dict[str, Any]:
    """Runs one more part if kills are left. Returns the totals of all parts."""
    folder.mkdir(parents=True, exist_ok=True)
    done = sum(len(one.roles) for one in kill_batches(folder))
    if done < kills:
        with running_loop(folder / "run", start_s=PATIENCE_S, env={"PYTHONPATH": ""}) as loop:
            asyncio.run(piece(loop, folder, kills - done, minutes, seed=done))
    result: dict[str, Any] = summary(kill_batches(folder)) | compare(Loop(folder / "run"), folder)
    orphans = left_behind(folder / "run")
    result |= {"orphans": len(orphans), "first_orphans": orphans[:3]}
    fault_table.note(folder, "many_kills", result)
    return result


def is_well(result: dict[str, Any]) -> bool:
    wrong = ("lost", "doubled", "altered", "trained_twice", "samples_in_a_wrong_state", "refused", "orphans")
    return not any(result[name] for name in wrong)


if __name__ == "__main__":
    main()
