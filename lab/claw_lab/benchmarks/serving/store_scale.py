"""Measures the store with 100,000 turns: turns recorded per second, time to lease a batch, growth of memory.

`bash lab/run.sh benchmarks.serving.store_scale` uses a temporary SQLite file; `--rl-buffer-url` names another (empty)
database. Prints one JSON line. Targets: 1,000 turns/s, 50 ms for a lease, memory within 5 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from openclaw.store import RolloutStore, StoreWriter
from openclaw.types import Judgement, NewTurn, SampleDraft, Vote

PROMPT_TOKENS, COMPLETION_TOKENS, MESSAGE_BYTES = 600, 64, 2000
THANKS = [{"role": "user", "content": "Thanks, that is right."}]


def make_turn(number: int, text: str) -> NewTurn:
    """Returns a turn of the usual size: 2 KB of messages, 600 prompt ids, 64 sampled ids with log-probs."""
    sample = random.Random(number)
    return NewTurn(
        completion_id=f"chatcmpl-{number}",
        session_id=f"session-{number // 20}",
        messages=[{"role": "user", "content": text[number % 1000 :][:MESSAGE_BYTES]}],
        response_message={"role": "assistant", "content": text[:200]},
        prompt_ids=sample.choices(range(150_000), k=PROMPT_TOKENS),
        completion_ids=sample.choices(range(150_000), k=COMPLETION_TOKENS),
        completion_log_probs=[-sample.expovariate(1.0) for _ in range(COMPLETION_TOKENS)],
        version_spans=[(0, 0, COMPLETION_TOKENS)],
        sampling={"temperature": 0.6},
        finish_reason="stop",
        transcript_digest=f"{number:032x}",
    )


async def ingest(store: RolloutStore, turns: int, clients: int) -> dict[str, float]:
    """Records turns durably, `clients` at a time, as gateways do. Returns the rate, and memory after a fifth and at the
    end."""
    writer = StoreWriter(store.database)
    words = random.Random(0)
    text = " ".join("".join(words.choices("etaoinshrdlu", k=5)) for _ in range(1000))
    numbers = iter(range(turns))
    process, memory = psutil.Process(), {}
    busy = 0.0

    async def client() -> None:
        nonlocal busy
        for number in numbers:
            started = time.thread_time()
            turn = make_turn(number, text)
            busy += time.thread_time() - started
            await writer.submit(lambda turn=turn: store.turns.record(turn))  # type: ignore[misc]
            if number in (turns // 5, turns - 1):
                memory[number] = process.memory_info().rss / 2**20

    started, used = time.perf_counter(), process.cpu_times()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - started
    cpu = sum(process.cpu_times()[:2]) - sum(used[:2])
    await asyncio.to_thread(writer.close)
    first, last = memory[turns // 5], memory[turns - 1]
    return {
        "ingest_turns_per_s": turns / seconds,
        "ingest_turns_per_cpu_s": turns / (cpu - busy),
        "memory_mib_after_a_fifth": first,
        "memory_mib": last,
        "memory_growth": last / first - 1,
    }


def judge(store: RolloutStore, turns: int) -> dict[str, float]:
    """Answers, claims and judges every turn, so that all samples are ready. Returns rate and time."""
    started = time.perf_counter()
    for start in range(0, turns, 250):
        with store.database.transaction():
            for number in range(start, min(start + 250, turns)):
                turn = store.turns.get_by_completion(f"chatcmpl-{number}")
                assert turn is not None and store.turns.answer(turn.id, THANKS)
    score = Judgement(kind="eval", score=1.0, votes=[Vote(score=1)], judge="benchmark")
    claims: list[float] = []
    while True:
        claimed_at = time.perf_counter()
        claimed = store.judgements.claim("benchmark", 100, 60.0)
        claims.append(time.perf_counter() - claimed_at)
        if not claimed:
            break
        with store.database.transaction():
            for turn in claimed:
                store.judgements.finish(turn.id, [score], SampleDraft(turn_id=turn.id, reward=1.0))
    return {
        "judged_turns_per_s": turns / (time.perf_counter() - started),
        "claim_100_ms_p50": 1000 * statistics.median(claims),
    }


def lease(store: RolloutStore, batches: int, size: int) -> dict[str, float]:
    """Leases and commits batches while all other samples are ready. Returns times in ms."""
    leases, polls = [], []
    for rollout_id in range(batches):
        started = time.perf_counter()
        store.samples.ready_count()
        store.samples.oldest_ready_at()
        polled = time.perf_counter()
        samples = store.samples.lease(rollout_id, size)
        leases.append(time.perf_counter() - polled)
        polls.append(polled - started)
        assert len(samples) == size
        store.samples.commit_lease(rollout_id, rollout_id + 1)
    started = time.perf_counter()
    store.status.counts()
    return {
        "lease_ms_p50": 1000 * statistics.median(leases),
        "lease_ms_p99": 1000 * statistics.quantiles(leases, n=100)[98],
        "lease_ms_max": 1000 * max(leases),
        "poll_ms_p50": 1000 * statistics.median(polls),
        "counts_ms": 1000 * (time.perf_counter() - started),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=64, help="concurrent turns")
    parser.add_argument("--batches", type=int, default=200, help="batches to lease")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rl-buffer-url", help="URL of an empty database; default: a temporary SQLite file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = RolloutStore(args.rl_buffer_url or folder)
        result: dict[str, Any] = {"turns": args.turns, "database": store.database.url.partition(":")[0]}
        result |= asyncio.run(ingest(store, args.turns, args.clients))
        result |= judge(store, args.turns)
        result |= lease(store, args.batches, args.batch_size)
        file = Path(folder) / "buffer.db"
        result["bytes_per_turn"] = file.stat().st_size / args.turns if file.exists() else None
        store.close()
    print(
        json.dumps(
            {key: round(value, 3) if isinstance(value, float) else value for key, value in result.items()}
        )
    )


if __name__ == "__main__":
    main()
