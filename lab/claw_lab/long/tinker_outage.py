"""Lets people talk and the model train while the service is killed for a minute; prints the losses if training
continued.

Started by tinker_outage.sh, which starts the service again when the file `--up` appears.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import httpx

from openclaw.store import RolloutStore
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.scripted_people import People, talk_until

READING_S, ANSWER_S = 1.0, 900.0


async def live_version(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False) as http:
        return int((await http.get(f"{url}/status", timeout=30)).json()["weight_version"])


async def reaches(url: str, version: int, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if await live_version(url) >= version:
            return True
        await asyncio.sleep(1)
    return False


async def run(options: argparse.Namespace) -> dict[str, object]:
    people, done = People(), asyncio.Event()
    async with ChatClient(options.url, timeout_s=ANSWER_S) as client:
        talking = [
            asyncio.create_task(talk_until(done, client, seed, people, READING_S))
            for seed in range(options.people)
        ]
        began = await reaches(options.url, 1, options.patience)
        before = await live_version(options.url)
        killed = time.monotonic()
        os.killpg(options.server, signal.SIGKILL)
        await asyncio.sleep(options.seconds)
        options.up.touch()
        up = time.monotonic()
        went_on = await reaches(options.url, before + 2, options.patience)
        done.set()
        await asyncio.gather(*talking)
    store = RolloutStore(options.run_dir / "buffer")
    stored = {one.completion_id: store.turns.get_by_completion(one.completion_id) for one in people.seen}
    store.close()
    answers = {one.completion_id: one.text for one in people.seen}
    return {
        "answers": len(people.seen),
        "asked_before_and_answered_after_the_outage": sum(
            x.begun < up and x.ended > killed for x in people.seen
        ),
        "longest_answer_s": round(max((x.ended - x.begun for x in people.seen), default=0.0), 1),
        "failed": [failure for _, failure in people.failures],
        "answers_lost": sum(turn is None for turn in stored.values()),
        "stored_with_another_text": sum(
            turn is not None and (turn.response_message["content"] or "") != answers[name]
            for name, turn in stored.items()
        ),
        "version_before": before if began else None,
        "version_after": await live_version(options.url),
        "training_went_on": went_on,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--server", type=int, required=True, help="process group id of the service")
    parser.add_argument("--up", type=Path, required=True, help="file whose creation restarts the service")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--people", type=int, default=4)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds to wait for a live version")
    results = asyncio.run(run(parser.parse_args()))
    print(json.dumps(results))
    fine = results["training_went_on"] and not (
        results["failed"] or results["answers_lost"] or results["stored_with_another_text"]
    )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
