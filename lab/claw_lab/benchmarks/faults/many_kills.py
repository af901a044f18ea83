"""A thousand kills, in pieces: `kill -9` of every process, alone, up to four within a moment and again at once, while
people talk; every answer whose end a client saw is compared with the store, id by id.

`bash lab/run.sh benchmarks.faults.many_kills FOLDER` starts the loop in FOLDER/run, kills for
`--minutes`, stops the loop, looks for processes that stayed, compares, and prints one JSON line over all pieces so far.
The same command goes on where the last piece ended, until `--kills`. Exit status 1: something was lost, doubled, trained
twice or left behind."""

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
from claw_lab.benchmarks.faults.blows import Blow, blows_so_far, summary
from claw_lab.benchmarks.faults.fault_checks import PATIENCE_S, TRAINED_TWICE, WRONG_STATE, pid_of, until
from claw_lab.benchmarks.faults.fault_points import number
from claw_lab.benchmarks.faults.knocking import Knocking
from openclaw.store.rows import unpack_json
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.real_loop import Loop, running_loop
from openclaw_test.loop.scripted_people import People, talk_until

WEIGHTS = {
    "gateway": 8, "engine": 8, "gateway supervisor": 4, "engine supervisor": 4, "judge": 4, "buffer": 2, "trainer": 2,
    "driver": 0.25, "raylet": 0.25, "gcs": 0.25,
}  # fmt: skip
"""How often each is drawn of those that are there; what takes the driver along costs twenty seconds a kill."""
AT_ONCE = (1, 1, 2, 2, 3, 4)
"""How many are killed within a moment."""
AGAIN = 0.6
"""Chance that what took over is struck too, within half a second, and what took over from that, and so on."""
MOST_STRIKES = 5
PEOPLE = 4
TRAINED = "SELECT count(*) FROM weight_version"
"""Versions, those too that the gate did not let through."""
ENDED_S = 20.0
"""After the stop, until a process that is still there counts as left behind."""


def strike(loop: Loop, roles: list[str]) -> list[str]:
    """Kills those that are there; returns whom."""
    killed = []
    for role in roles:
        pid = pid_of(loop, role)
        with contextlib.suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                killed.append(role)
    return killed


async def blow(loop: Loop, people: People, knocking: Knocking, rng: random.Random) -> Blow:
    """One blow at a random moment; returns once answers come again. Raises TimeoutError."""
    await asyncio.sleep(rng.uniform(0.0, 0.4))
    while not (there := [role for role in WEIGHTS if pid_of(loop, role) is not None]):
        await asyncio.sleep(0.1)
    wanted = rng.choices(there, [WEIGHTS[role] for role in there], k=rng.choice(AT_ONCE))
    began = time.monotonic()
    roles = strike(loop, sorted(set(wanted)))
    for _ in range(MOST_STRIKES - 1):
        if rng.random() > AGAIN:
            break
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        roles += strike(loop, sorted(set(wanted)))
    killed_at = time.monotonic()
    await until(lambda: any(one.begun > killed_at for one in people.seen[-200:]), "answer after the kill")
    await until(lambda: knocking.back_after(killed_at) is not None, "health after the kill")
    answers = min(one.ended for one in people.seen[-200:] if one.begun > killed_at) - killed_at
    health = knocking.back_after(killed_at) or 0.0
    return Blow(roles, round(answers, 2), round(health, 3), knocking.refused_since(began))


async def piece(loop: Loop, folder: Path, kills: int, minutes: float, seed: int) -> None:
    """Blows until so many kills or minutes; what was seen is noted as it comes."""
    people, done, rng = People(), asyncio.Event(), random.Random(seed)
    notebook = SeenNotes(folder / "seen.jsonl", people)
    end, count = time.monotonic() + 60 * minutes, 0
    async with ChatClient(loop.url) as client:
        talking = [
            asyncio.create_task(talk_until(done, client, 1000 * seed + n, people)) for n in range(PEOPLE)
        ]
        await until(lambda: len(people.seen) >= PEOPLE, "first answers")
        with Knocking(loop.port) as knocking:
            while count < kills and time.monotonic() < end:
                struck = await blow(loop, people, knocking, rng)
                count += len(struck.roles)
                notebook.write()
                note(folder / "blows.jsonl", [asdict(struck)])
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
    """What clients saw, written down as it comes: a piece that ends too early is compared all the same."""

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
    """Processes of the run that are still there some seconds after its end: what names its folder on the command line
    or in the environment."""
    deadline = time.monotonic() + ENDED_S
    while (found := [*_processes_of(run_dir)]) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def _processes_of(run_dir: Path) -> list[str]:
    found, name = [], str(run_dir)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            words = " ".join([*process.cmdline(), process.environ().get("RUN_DIR", "")])
            if process.pid != os.getpid() and name in words and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {words[:200]}")
    return found


def compare(loop: Loop, folder: Path) -> dict[str, int]:
    """All that clients saw in all pieces against what is stored."""
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
    """(completion id, text) of every stored turn."""
    uri = f"file:{loop.run_dir}/buffer/buffer.db?mode=ro"
    query = "SELECT completion_id, response_message FROM turn JOIN turn_body ON turn_id = id"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
        return [(name, unpack_json(body)["content"] or "") for name, body in database.execute(query)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the run and the notes are kept between the pieces")
    parser.add_argument("--kills", type=int, default=1000, help="in all pieces together")
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="of this piece, start and stop not counted"
    )
    args = parser.parse_args()
    result = go_on(args.folder.resolve(), args.kills, args.minutes)
    print(json.dumps(result))
    sys.exit(0 if is_well(result) else 1)


def go_on(folder: Path, kills: int, minutes: float) -> dict[str, Any]:
    """One more piece, if kills are left; what came of all pieces."""
    folder.mkdir(parents=True, exist_ok=True)
    done = sum(len(one.roles) for one in blows_so_far(folder))
    if done < kills:
        with running_loop(folder / "run", start_s=PATIENCE_S, env={"PYTHONPATH": ""}) as loop:
            asyncio.run(piece(loop, folder, kills - done, minutes, seed=done))
    result: dict[str, Any] = summary(blows_so_far(folder)) | compare(Loop(folder / "run"), folder)
    orphans = left_behind(folder / "run")
    result |= {"orphans": len(orphans), "first_orphans": orphans[:3]}
    fault_table.note(folder, "many_kills", result)
    return result


def is_well(result: dict[str, Any]) -> bool:
    wrong = ("lost", "doubled", "altered", "trained_twice", "samples_in_a_wrong_state", "refused", "orphans")
    return not any(result[name] for name in wrong)


if __name__ == "__main__":
    main()
