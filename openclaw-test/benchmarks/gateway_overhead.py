"""What the gateway adds to an engine's answer: time, processor, and the work for the next turn of a long talk.

`python openclaw-test/benchmarks/gateway_overhead.py` puts a gateway that records every turn in front of an engine
that samples nothing (64 tokens, 2 KB requests), and prints one JSON line. Times are in milliseconds, processor time
is the gateway process's own; `direct` is the same client on the engine itself, in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aiohttp
import psutil
from fake_engine import TOKENS

from harness import ROOT, free_port

MODEL = ROOT / "openclaw-test" / "tiny_claw" / "model"
CONTEXT = 65_536
TEXT = "The quick brown fox jumps over the lazy dog, and then it takes a long rest. "
REQUEST_CHARACTERS = 2_000
HISTORY_TOKENS = 10_000
CHARACTERS_A_TOKEN = 2.2
"""Of TEXT with the tiny model's tokenizer, measured; the history's true length is printed."""
TOKEN_PAUSE_S = 0.005
"""Between two tokens of the streaming engine: a fast one."""
CLIENTS = 16
REST_S = 0.2

Ask = Callable[[int], Awaitable[float]]


def model_folder(parent: Path) -> Path:
    """The tiny model's tokenizer with room for a long talk."""
    folder = parent / "model"
    folder.mkdir()
    for path in MODEL.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
    return folder


@contextmanager
def process(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and its first line once it is ready."""
    started = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert started.stdout is not None
        yield started, started.stdout.readline()
    finally:
        started.terminate()
        started.wait(30)


class Gateway:
    """A running gateway over a fake engine."""

    def __init__(self, pid: int, url: str, engine_url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.engine_url = engine_url
        self._process = psutil.Process(pid)
        self._http = http

    def cpu_s(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    async def chat(self, messages: list[dict[str, Any]], **body: Any) -> tuple[float, float, bytes]:
        """(seconds to the first byte of the body, to its end, the body)."""
        return await self._post(f"{self.url}/v1/chat/completions", {"messages": messages, **body})

    async def direct(self, number: int) -> float:
        """The engine itself: seconds to the end."""
        body = {"input_ids": [5] * 900, "sampling_params": {"max_new_tokens": TOKENS}, "stream": True}
        return (await self._post(f"{self.engine_url}/generate", body))[1]

    async def direct_first(self, number: int) -> float:
        body = {"input_ids": [5] * 900, "sampling_params": {"max_new_tokens": TOKENS}, "stream": True}
        return (await self._post(f"{self.engine_url}/generate", body))[0]

    async def whole(self, number: int) -> float:
        return (await self.chat(message(number)))[1]

    async def stream_first(self, number: int) -> float:
        return (await self.chat(message(number), stream=True))[0]

    async def _post(self, url: str, body: dict[str, Any]) -> tuple[float, float, bytes]:
        began = time.perf_counter()
        first = 0.0
        parts = []
        async with self._http.post(url, json=body) as answer:
            async for part in answer.content.iter_any():
                first = first or time.perf_counter() - began
                parts.append(part)
            answer.raise_for_status()
        return first, time.perf_counter() - began, b"".join(parts)


def message(number: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"{number} " + (TEXT * 30)[:REQUEST_CHARACTERS]}]


async def one_by_one(ask: Ask, count: int) -> float:
    """Median time in ms."""
    return statistics.median([await ask(number) for number in range(count)]) * 1e3


async def together(ask: Ask, count: int, rest_s: float = 0.0) -> tuple[float, float]:
    """(answers a second, median time in ms) of CLIENTS at a time. Before each request a client rests for up to
    `rest_s` seconds, so that they do not all begin at once."""
    rng = random.Random(0)
    numbers = iter(range(1_000_000, 1_000_000 + count))
    times: list[float] = []

    async def client() -> None:
        for number in numbers:
            if rest_s:
                await asyncio.sleep(rng.uniform(0, rest_s))
            times.append(await ask(number))

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return count / (time.perf_counter() - began), statistics.median(times) * 1e3


async def next_turns(gateway: Gateway, count: int) -> dict[str, float]:
    """A talk as OpenClaw has it: system prompt and tools are half of HISTORY_TOKENS, old turns the other half;
    the client stamps its texts, changes ids of tool calls and adds a message of internal context."""
    half = int(HISTORY_TOKENS * CHARACTERS_A_TOKEN / 2)
    prose = TEXT * (half // len(TEXT))
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{n}",
                "description": prose[: half // 40],
                "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
            },
        }
        for n in range(10)
    ]
    talk: list[dict[str, Any]] = [{"role": "system", "content": prose[: half // 2]}]
    for n in range(20):
        talk.append({"role": "user", "content": f"[Sat 2026-11-21 02:{n:02} UTC] {n} " + prose[: half // 60]})
        call = {
            "id": f"call{n}",
            "type": "function",
            "function": {"name": "tool_1", "arguments": '{"path": "a"}'},
        }
        talk.append({"role": "assistant", "content": None, "tool_calls": [call]})
        talk.append({"role": "tool", "tool_call_id": f"call{n}", "content": prose[: half // 60]})
        talk.append({"role": "assistant", "content": prose[: half // 60]})
    context = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
    times, cpu, tokens = [], 0.0, 0
    for n in range(count + 3):
        talk.append({"role": "user", "content": f"[Sat 2026-11-21 03:00 UTC] and {n}?"})
        before = gateway.cpu_s()
        _, seconds, body = await gateway.chat(
            [*talk, {"role": "user", "content": context}], tools=tools, session_id="long"
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


async def measure_whole(gateway: Gateway, count: int) -> dict[str, float]:
    await one_by_one(gateway.whole, 30)
    direct = await one_by_one(gateway.direct, count)
    alone = await one_by_one(gateway.whole, count)
    before = gateway.cpu_s()
    answers, _ = await together(gateway.whole, 4 * count)
    cpu = (gateway.cpu_s() - before) / (4 * count)
    direct_answers, _ = await together(gateway.direct, 4 * count)
    found = {
        "direct_p50_ms": direct,
        "added_p50_ms": alone - direct,
        "direct_answers_per_s": direct_answers,
        "answers_per_s": answers,
        "cpu_ms_per_answer": cpu * 1e3,
    }
    return found | await next_turns(gateway, max(count // 10, 5))


async def measure_stream(gateway: Gateway, count: int) -> dict[str, float]:
    await together(gateway.stream_first, 32)
    before = gateway.cpu_s()
    _, first = await together(gateway.stream_first, count, REST_S)
    cpu = (gateway.cpu_s() - before) / count
    _, direct_first = await together(gateway.direct_first, count, REST_S)
    return {
        "stream_first_token_added_p50_ms": first - direct_first,
        "stream_cpu_us_per_token": cpu / TOKENS * 1e6,
    }


async def measure(pid: int, url: str, engine_url: str, work: Any, count: int) -> dict[str, float]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as http:
        found: dict[str, float] = await work(Gateway(pid, url, engine_url, http), count)
        return found


def run(work: Any, count: int, pause: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        engine_port, port = free_port(), free_port()
        script = str(Path(__file__).with_name("fake_engine.py"))
        engine_url = f"http://127.0.0.1:{engine_port}"
        flags = [
            "--model-path",
            str(model_folder(Path(folder))),
            "--port",
            str(port),
            "--engine-url",
            engine_url,
        ]
        flags += ["--enable-rl-intercept", "--rl-buffer-dir", f"{folder}/buffer", "--log-level", "warning"]
        with process(script, str(engine_port), str(pause)):
            with process("-m", "openclaw.server", *flags) as (server, line):
                assert line.startswith("ready:"), line
                url = f"http://127.0.0.1:{port}"
                return asyncio.run(measure(server.pid, url, engine_url, work, count))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=200, help="answers one by one; four times as many together"
    )
    count = parser.parse_args().count
    found = run(measure_whole, count, 0.0) | run(measure_stream, count, TOKEN_PAUSE_S)
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))


if __name__ == "__main__":
    main()
