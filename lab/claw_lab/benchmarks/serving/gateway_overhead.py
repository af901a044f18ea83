"""Measures the overhead of the gateway over an engine: time, processor time, and the work for the next turn of a long
conversation.

`bash lab/run.sh benchmarks.serving.gateway_overhead` runs a gateway that records all turns with an engine that
samples nothing (64 tokens, 2 KB requests), and prints one JSON line. Times are in milliseconds, processor time is
that of the gateway process; `direct` is the same client on the engine itself, in the same run. With `--build-peers
FOLDER` (or `--peer NAME=PYTHON`) gateways of other projects answer the same questions in turn: `times_NAME` is the
ratio of our answers per second to theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import aiohttp

from claw_lab.benchmarks.serving.fake_engine import TOKENS
from claw_lab.benchmarks.serving.gateway_servers import Ask, Gateway, Servers, cpu_s, running
from claw_lab.benchmarks.serving.long_talk import INTERNAL_CONTEXT, long_talk
from claw_lab.benchmarks.serving.peers import PEERS, build

TOKEN_PAUSE_S = 0.005
"""Seconds between two tokens of the streaming engine, as of a fast model."""
CLIENTS = 16
REST_S = 0.2

ROUNDS = 3

Found = dict[str, float]


async def one_by_one(ask: Ask, count: int) -> float:
    """Returns the median time in ms of sequential requests."""
    return statistics.median([await ask() for _ in range(count)]) * 1e3


async def together(ask: Ask, count: int, rest_s: float = 0.0) -> tuple[float, float]:
    """Returns (answers a second, median time in ms) of CLIENTS parallel clients. Each client waits up to `rest_s`
    seconds before a request, so that they do not all start at once."""
    rng = random.Random(0)
    questions = iter(range(count))
    times: list[float] = []

    async def client() -> None:
        for _ in questions:
            if rest_s:
                await asyncio.sleep(rng.uniform(0, rest_s))
            times.append(await ask())

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return count / (time.perf_counter() - began), statistics.median(times) * 1e3


async def next_turns(gateway: Gateway, count: int) -> Found:
    """Measures the next turn of an OpenClaw conversation repeatedly."""
    talk, tools = long_talk()
    times, cpu, tokens = [], 0.0, 0
    for n in range(count + 3):
        talk.append({"role": "user", "content": f"[Sat 2026-11-21 03:00 UTC] and {n}?"})
        before = gateway.cpu_s()
        _, seconds, body = await gateway.chat(
            [*talk, {"role": "user", "content": INTERNAL_CONTEXT}], tools=tools, session_id="long"
        )
        if n >= 3:
            times.append(seconds)
            cpu += gateway.cpu_s() - before
        answer = json.loads(body)
        tokens = answer["usage"]["prompt_tokens"]
        talk.append(answer["choices"][0]["message"])
    direct = await one_by_one(gateway.direct, count)
    return {
        "history_tokens": tokens,
        "next_turn_p50_ms": statistics.median(times) * 1e3 - direct,
        "next_turn_cpu_ms": cpu / count * 1e3,
    }


async def bursts(ask: Ask, count: int) -> float:
    """Returns the median time in ms of bursts of CLIENTS simultaneous requests."""
    times = []
    for _ in range(0, count, CLIENTS):
        times += await asyncio.gather(*(ask() for _ in range(CLIENTS)))
    return statistics.median(times) * 1e3


async def measure_whole(gateway: Gateway, count: int) -> Found:
    await one_by_one(gateway.whole, 30)
    direct = await one_by_one(gateway.direct, count)
    alone = await one_by_one(gateway.whole, count)
    before = gateway.cpu_s()
    answers, _ = await together(gateway.whole, 4 * count)
    cpu = (gateway.cpu_s() - before) / (4 * count)
    direct_answers, _ = await together(gateway.direct, 4 * count)
    seconds_by_server = {
        "direct_p50_ms": direct,
        "added_p50_ms": alone - direct,
        "direct_answers_per_s": direct_answers,
        "answers_per_s": answers,
        "cpu_ms_per_answer": cpu * 1e3,
    }
    return seconds_by_server | await next_turns(gateway, max(count // 10, 5)) | await compare(gateway, count)


async def compare(gateway: Gateway, count: int) -> Found:
    """Asks all gateways the same questions in turn, ROUNDS times; returns medians, which tolerate a busy moment."""
    asks = {"ours": gateway.whole} | {name: gateway.peer(name) for name in gateway.servers.peers}
    pids = {name: peer.pid for name, peer in gateway.servers.peers.items()}
    pids["ours"] = gateway.servers.gateway.pid
    alone: dict[str, list[float]] = {name: [] for name in asks}
    rates: dict[str, list[float]] = {name: [] for name in asks}
    cpu: dict[str, list[float]] = {name: [] for name in asks}
    for _ in range(ROUNDS if len(asks) > 1 else 0):
        for name, ask in asks.items():
            await one_by_one(ask, 10)
            alone[name].append(await one_by_one(ask, count // 4))
            before = cpu_s(pids[name])
            rates[name].append((await together(ask, count))[0])
            cpu[name].append((cpu_s(pids[name]) - before) / count * 1e3)
    medians: Found = {}
    for name in asks if rates["ours"] else ():
        medians[f"{name}_p50_ms"] = statistics.median(alone[name])
        medians[f"{name}_answers_per_s"] = statistics.median(rates[name])
        medians[f"{name}_cpu_ms_per_answer"] = statistics.median(cpu[name])
        if name != "ours":
            pairs = zip(rates["ours"], rates[name], strict=True)
            medians[f"times_{name}"] = statistics.median(ours / theirs for ours, theirs in pairs)
    return medians


async def measure_stream(gateway: Gateway, count: int) -> Found:
    await together(gateway.stream_first, 32)
    before = gateway.cpu_s()
    _, first = await together(gateway.stream_first, count, REST_S)
    cpu = (gateway.cpu_s() - before) / count
    _, direct_first = await together(gateway.direct_first, count, REST_S)
    burst, direct_burst = await bursts(gateway.stream_first, count), await bursts(gateway.direct_first, count)
    return {
        "stream_first_token_added_p50_ms": first - direct_first,
        "burst_first_token_added_p50_ms": burst - direct_burst,
        "stream_cpu_us_per_token": cpu / TOKENS * 1e6,
    }


Work = Callable[[Gateway, int], Awaitable[Found]]


async def measure(servers: Servers, work: Work, count: int) -> Found:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as http:
        return await work(Gateway(servers, http), count)


def run(work: Work, count: int, pause: float, peers: Mapping[str, str]) -> Found:
    with running(pause, peers) as servers:
        return asyncio.run(measure(servers, work, count))


def peer(text: str) -> tuple[str, str]:
    name, equals, python = text.partition("=")
    if not equals or name not in PEERS:
        raise argparse.ArgumentTypeError(f"write NAME=PYTHON; known names: {', '.join(PEERS)}")
    return name, python


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count",
        type=int,
        default=200,
        help="number of sequential answers; four times as many concurrent ones",
    )
    parser.add_argument(
        "--peer", type=peer, action="append", default=[], help="compare with NAME=PYTHON; repeatable"
    )
    parser.add_argument(
        "--build-peers",
        type=Path,
        metavar="FOLDER",
        help="create the environments of the other gateways in this folder",
    )
    args = parser.parse_args()
    peers = (build(args.build_peers) if args.build_peers else {}) | dict(args.peer)
    results = run(measure_whole, args.count, 0.0, peers) | run(measure_stream, args.count, TOKEN_PAUSE_S, {})
    print(json.dumps({name: round(value, 2) for name, value in results.items()}))


if __name__ == "__main__":
    main()
