"""Measures the load time of the page and of a long turn, and the cost of an open page for clients.

`bash lab/run.sh benchmarks.serving.page_views` fills a store with 10,000 turns and one of 4,000 tokens, starts a
gateway on it with an engine that samples nothing, and prints one JSON line. `browser_*` is the time of a real
Chromium to its load event, if one is installed. `p50_open_over_closed` compares answers while a page is open (it
follows changes and reloads) with answers while none is, in turn, in the same run. Targets: 1 s, 1 s, ratio 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp

from claw_base.ports import free_port
from claw_lab.benchmarks.serving.fake_engine import fake_engine
from claw_lab.benchmarks.serving.gateway_overhead import one_by_one
from claw_lab.benchmarks.serving.gateway_servers import Gateway, Servers, model_folder, process
from claw_lab.benchmarks.serving.peers import Running
from claw_lab.benchmarks.serving.store_scale import make_turn
from openclaw.store import RolloutStore
from openclaw.types import Judgement, NewTurn, SampleDraft, Vote

LONG_TOKENS = 4000
LONG = "chatcmpl-long"
VOCABULARY = 1000
REST_S = 3.0
"""Seconds between two reloads of an open page, as in its script."""
GROUP = 500


def fill(folder: Path, turns: int) -> None:
    """Stores turns of 2 KB in sessions of 20, half of them judged, and a long one with its token record."""
    store = RolloutStore(folder)
    words = random.Random(0)
    text = " ".join("".join(words.choices("etaoinshrdlu", k=5)) for _ in range(1000))
    vote = Judgement(kind="eval", score=1.0, votes=[Vote(score=1, text="praise")], judge="rules")
    for start in range(0, turns, GROUP):
        with store.database.transaction():
            for number in range(start, min(start + GROUP, turns)):
                turn = store.turns.record(make_turn(number, text))
                if number % 2 and store.turns.answer(turn.id, [{"role": "user", "content": "Thanks!"}]):
                    store.judgements.finish(turn.id, [vote], SampleDraft(turn_id=turn.id, reward=1.0))
    turn = store.turns.record(_long_turn())
    store.turns.answer(turn.id, [{"role": "user", "content": "Thanks!"}])
    store.judgements.finish(turn.id, [vote], SampleDraft(turn_id=turn.id, reward=1.0))
    values = [words.uniform(-2, 2) for _ in range(LONG_TOKENS)]
    sample = store.samples.of_turn(turn.id)
    assert sample is not None
    names = ("advantage", "log_prob", "teacher_gap")
    store.token_records.keep(
        [{"sample": sample.id, "turn_id": turn.id, "version": 0, **dict.fromkeys(names, values)}]
    )
    store.close()


def _long_turn() -> NewTurn:
    chance = random.Random(1)
    return NewTurn(
        completion_id=LONG,
        session_id="long",
        messages=[{"role": "user", "content": "a long story, please"}],
        response_message={"role": "assistant", "content": "once upon a time " * 1000},
        prompt_ids=[5] * 20,
        completion_ids=chance.choices(range(20, VOCABULARY), k=LONG_TOKENS),
        completion_log_probs=[-chance.expovariate(1.0) for _ in range(LONG_TOKENS)],
        version_spans=[(0, 0, 2000), (1, 2000, LONG_TOKENS)],
        sampling={"temperature": 0.6},
        finish_reason="stop",
        transcript_digest="long",
    )


@contextmanager
def running(turns: int) -> Iterator[Servers]:
    """Starts an engine, and a gateway on a filled store."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, port = Path(name), free_port()
        fill(folder / "buffer", turns)
        engine_url = stack.enter_context(fake_engine())
        flags = ["--model-path", str(model_folder(folder)), "--port", str(port), "--engine-url", engine_url]
        flags += ["--enable-rl-intercept", "--rl-buffer-dir", f"{name}/buffer", "--log-level", "warning"]
        server, line = stack.enter_context(process("-m", "openclaw.server", *flags))
        if not line.startswith("ready:"):
            raise RuntimeError(f"the gateway did not start: {line}")
        yield Servers(Running(server.pid, f"http://127.0.0.1:{port}/v1/chat/completions"), engine_url, {})


async def timed(http: aiohttp.ClientSession, url: str) -> float:
    began = time.perf_counter()
    async with http.get(url) as answer:
        await answer.read()
        answer.raise_for_status()
    return time.perf_counter() - began


async def open_page(http: aiohttp.ClientSession, base: str) -> None:
    """Does the same as an open page: follows changes, and reloads at most every REST_S."""
    await timed(http, f"{base}/")
    async with http.get(f"{base}/page/events") as events:
        async for line in events.content:
            if line.startswith(b"event: changed"):
                await timed(http, f"{base}/")
                await asyncio.sleep(REST_S)


async def measure(servers: Servers, count: int, rounds: int) -> dict[str, float]:
    base = servers.gateway.url.removesuffix("/v1/chat/completions")
    limit = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limit) as http:
        gateway = Gateway(servers, http)
        views = {"first_view_s": f"{base}/", "long_turn_s": f"{base}/page/turn?id={LONG}"}
        seconds = {f"{name[:-2]}_first_time_s": await timed(http, url) for name, url in views.items()}
        for name, url in views.items():
            seconds[name] = statistics.median([await timed(http, url) for _ in range(9)])
        await one_by_one(gateway.whole, 30)
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds):
            for is_open in (False, True):
                page = asyncio.create_task(open_page(http, base)) if is_open else None
                times[is_open].append(await one_by_one(gateway.whole, count))
                if page is not None:
                    page.cancel()
                    await asyncio.gather(page, return_exceptions=True)
        seconds["p50_closed_ms"], seconds["p50_open_ms"] = (
            statistics.median(times[kind]) for kind in (False, True)
        )
        pairs = zip(times[True], times[False], strict=True)
        seconds["p50_open_over_closed"] = statistics.median(a / b for a, b in pairs)
        return seconds


def in_browser(base: str) -> dict[str, float]:
    """Returns the seconds to the load event in a new Chromium; {} if none is installed."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    if chromium is None:
        return {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        seconds = {}
        for name, path in (("first_view", "/"), ("long_turn", f"/page/turn?id={LONG}")):
            times = []
            for _ in range(3):
                page = browser.new_context(base_url=base).new_page()
                page.goto(path, wait_until="load")
                times.append(
                    page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1e3
                )
                page.context.close()
            seconds[f"browser_{name}_s"] = statistics.median(times)
        browser.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=10_000, help="number of stored turns")
    parser.add_argument("--count", type=int, default=150, help="sequential answers in each part of a round")
    parser.add_argument("--rounds", type=int, default=6, help="rounds, each without and with an open page")
    args = parser.parse_args()
    with running(args.turns) as servers:
        seconds = asyncio.run(measure(servers, args.count, args.rounds))
        seconds |= in_browser(servers.gateway.url.removesuffix("/v1/chat/completions"))
    print(json.dumps({name: round(value, 3) for name, value in seconds.items()}))


if __name__ == "__main__":
    main()
