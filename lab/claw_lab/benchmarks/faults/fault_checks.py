"""Finds the processes of a loop by role, and compares the answers that clients received with the stored ones."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import psutil

from claw_base.run_folder.records import live_processes
from claw_lab.benchmarks.faults.fault_points import number
from openclaw.store import RolloutStore
from openclaw_test.loop.real_loop import Loop
from openclaw_test.loop.scripted_people import People

RAY = {"raylet": "raylet", "gcs": "gcs_server"}
BEHIND = ("trainer", "driver", "raylet", "gcs")
"""Roles whose death does not affect gateway and engines."""
SUPERVISORS = {"gateway supervisor": "gateway", "engine supervisor": "engine-0"}
"""File names of the socket supervisors' records, by role."""
ROLES = ("gateway", "engine", *SUPERVISORS, "judge", "buffer", *BEHIND)
PATIENCE_S = 300.0

_SURVIVING = """
    FROM training JOIN weight_version USING (trainer, version)
    WHERE weight_version.status IN ('live', 'superseded')
"""
TRAINED_TWICE = f"SELECT count(*) FROM (SELECT sample_id {_SURVIVING} GROUP BY sample_id HAVING count(*) > 1)"
WRONG_STATE = (
    f"SELECT count(*) FROM sample WHERE (state = 'trained') != (id IN (SELECT sample_id {_SURVIVING}))"
)


def pid_of(loop: Loop, role: str) -> int | None:
    """Returns the process id of a role, from the run folder or, for Ray's own processes, from the driver's
    children."""
    records = live_processes(loop.run_dir)
    if role in SUPERVISORS:
        return next((entry["pid"] for entry in records if entry["name"] == SUPERVISORS[role]), None)
    pids = {entry["role"]: entry["pid"] for entry in records}
    if role not in RAY:
        return pids.get(role)
    try:
        children = psutil.Process(pids["driver"]).children(recursive=True)
        return next((child.pid for child in children if child.name() == RAY[role]), None)
    except (KeyError, psutil.NoSuchProcess):
        return None


async def until(condition: Callable[[], bool], what: str) -> None:
    """Waits until the condition holds; raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {PATIENCE_S:g} s")
        await asyncio.sleep(0.05)


def live_version(loop: Loop) -> int:
    return number(loop, "SELECT max(version) FROM weight_version WHERE status = 'live'")


def compare(loop: Loop, people: People) -> dict[str, int]:
    """Compares the answers that clients received with the store."""
    stored = Counter(row["completion_id"] for row in loop.turns("completion_id"))
    store = RolloutStore(loop.run_dir / "buffer")
    turns = {one.completion_id: store.turns.get_by_completion(one.completion_id) for one in people.seen}
    store.close()
    texts = {one.completion_id: one.text for one in people.seen}
    differ = [
        id_ for id_, turn in turns.items() if turn and (turn.response_message["content"] or "") != texts[id_]
    ]
    return {
        "answers_seen": len(people.seen),
        "answers_lost": sum(turn is None for turn in turns.values()),
        "stored_twice": sum(count > 1 for count in stored.values()),
        "stored_with_another_text": len(differ),
        "samples_trained": number(loop, f"SELECT count(DISTINCT sample_id) {_SURVIVING}"),
        "samples_trained_twice": number(loop, TRAINED_TWICE),
        "samples_in_a_wrong_state": number(loop, WRONG_STATE),
    }
