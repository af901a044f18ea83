"""Measures eight streams during three weight updates: errors, refused requests, and the longest gap in an answer.

`bash lab/run.sh benchmarks.serving.streams_through_updates` starts the loop in a temporary
folder and prints one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.demo import Learning, talk
from openclaw_test.loop.real_loop import running_loop
from openclaw_test.people.scripted_user import ScriptedUser


async def measure(url: str, clients: int, updates: int) -> dict[str, object]:
    async with ChatClient(url) as client:
        first = (await client.status())["weight_version"]
        done, started = asyncio.Event(), time.monotonic()

        async def person(number: int) -> None:
            user = ScriptedUser(1000 + number)
            while not done.is_set():
                await talk(client, user, number, Learning(), reading_s=0.0)

        people = [asyncio.create_task(person(number)) for number in range(clients)]
        while (await client.status())["weight_version"] < first + updates:
            await asyncio.sleep(0.2)
        done.set()
        await asyncio.gather(*people)
        last = (await client.status())["weight_version"]
        return {
            "clients": clients,
            "updates": last - first,
            "requests": client.tally.requests,
            "failed_requests": client.tally.failed,
            "longest_gap_s": round(client.tally.longest_gap_s, 3),
            "seconds": round(time.monotonic() - started, 1),
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--updates", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_loop(Path(folder) / "run") as loop:
        print(json.dumps(asyncio.run(measure(loop.url, options.clients, options.updates))))
