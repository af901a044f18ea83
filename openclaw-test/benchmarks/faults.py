"""`kill -9` of each process while people talk: what was lost, and how long until answers come again.

`python openclaw-test/benchmarks/faults.py` starts the loop in a temporary folder and prints one JSON line a role.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx

from chat_client import ChatClient
from harness import Loop, running_loop
from scripted_user import ScriptedUser

ROLES = ("judge", "trainer", "engine", "gateway", "driver")


@dataclass
class Seen:
    """Answers whose end a client saw: completion id and the moment, monotonic seconds."""

    ids: list[str] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)


async def person(client: ChatClient, seed: int, seen: Seen, done: asyncio.Event) -> None:
    user = ScriptedUser(seed)
    while not done.is_set():
        session, scope = user.session(), uuid.uuid4().hex
        text: str | None = session.opening
        messages: list[dict[str, str]] = []
        while text is not None and not done.is_set():
            messages.append({"role": "user", "content": text})
            answer = await client.chat(messages, session_id=scope, max_tokens=200)
            if answer.error is not None or answer.completion_id is None:
                await asyncio.sleep(0.2)
                break
            seen.ids.append(answer.completion_id)
            seen.ends.append(time.monotonic())
            messages.append({"role": "assistant", "content": answer.text})
            text = session.next_message(answer.text)


async def kill_while_talking(loop: Loop, role: str, people: int = 4) -> dict[str, object]:
    """Kills one process; returns what the clients and the store saw."""
    seen, done = Seen(), asyncio.Event()
    async with ChatClient(loop.url) as client:
        tasks = [asyncio.create_task(person(client, hash((role, n)), seen, done)) for n in range(people)]
        while len(seen.ids) < 2 * people:
            await asyncio.sleep(0.1)
        killed_at = time.monotonic()
        loop.kill(role)
        version = await version_after_the_kill(loop)
        while not any(end > killed_at + 0.2 for end in seen.ends):
            await asyncio.sleep(0.05)
        serving_s = next(end for end in seen.ends if end > killed_at + 0.2) - killed_at
        while await version_of(loop) <= version:
            await asyncio.sleep(0.2)
        training_s = time.monotonic() - killed_at
        done.set()
        await asyncio.gather(*tasks)
    stored = [row["completion_id"] for row in loop.turns("completion_id")]
    return {
        "killed": role,
        "serving_again_s": round(serving_s, 2),
        "next_version_live_s": round(training_s, 2),
        "broken_streams": client.tally.failed,
        "answers_seen": len(seen.ids),
        "answers_lost": len(set(seen.ids) - set(stored)),
        "stored_twice": len(stored) - len(set(stored)),
    }


async def version_after_the_kill(loop: Loop) -> int:
    """The live version a second after the kill: an update that was almost done when it came does not count."""
    await asyncio.sleep(1.0)
    while (version := await version_of(loop)) < 0:
        await asyncio.sleep(0.1)
    return version


async def version_of(loop: Loop) -> int:
    try:
        return int(loop.status()["weight_version"])
    except httpx.HTTPError:
        return -1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, running_loop(Path(folder) / "run") as loop:
        for role in sys.argv[1:] or ROLES:
            print(json.dumps(asyncio.run(kill_while_talking(loop, role))), flush=True)
