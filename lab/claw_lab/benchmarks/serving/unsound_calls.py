"""Samples tool calls of the tiny model at temperature 1.5, and counts the invalid ones that reach a client as calls,
by dialect.

`bash lab/run.sh benchmarks.serving.unsound_calls --count 10000` serves the tiny model, samples answers with required
or optional tool calls, and writes the ids of each answer as the events of each dialect, split at random. Its calls
are rarely valid: `--continued N` more answers continue a random part of a valid call, with a bias towards the rest of
it, so that valid and almost valid calls occur too. `--http N` of the answers come over HTTP in each dialect. Prints
one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import httpx

from claw_base.ports import free_port
from claw_lab import MODEL
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.tokenizer import Tokenizer
from openclaw.gateway.exchange import Chunk, Completion
from openclaw.http.dialects.chat import Chunks
from openclaw.http.dialects.messages import MessageEvents
from openclaw.http.dialects.responses import ResponseEvents

Json = dict[str, Any]
Call = tuple[str, str]
NAMES = ("get_weather", "get_time")
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
TALK = [{"role": "user", "content": "What is the weather in Paris?"}]
NAMED: Json = {"type": "function", "function": {"name": NAMES[0]}}
LONGEST = 60
TEMPERATURE = 1.5
AT_A_TIME = 48
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call><|im_end|>'
BIASES = (0.0, 4.0, 8.0, 12.0)
"""Logit biases of the remaining tokens of CALL, one for each answer."""


def bodies(number: int) -> dict[str, tuple[str, Json]]:
    """Returns (route, body) of one request in each dialect; every second one requires the first tool."""
    common: Json = {"model": MODEL.name, "temperature": TEMPERATURE, "seed": number, "stream": True}
    forced = number % 2 == 0
    flat = [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES]
    own = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
    chat = {**common, "messages": TALK, "tools": TOOLS, "max_tokens": LONGEST}
    item = {**common, "input": TALK, "tools": flat, "max_output_tokens": LONGEST}
    block = {**common, "messages": TALK, "tools": own, "max_tokens": LONGEST}
    if forced:
        chat["tool_choice"] = NAMED
        item["tool_choice"] = {"type": "function", "name": NAMES[0]}
        block["tool_choice"] = {"type": "tool", "name": NAMES[0]}
    return {
        "chat": ("chat/completions", chat),
        "responses": ("responses", item),
        "messages": ("messages", block),
    }


def calls_in(dialect: str, events: bytes) -> list[Call]:
    """Returns (name, arguments) of the calls that a client would execute from a stream."""
    calls: list[list[str]] = []
    for line in events.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        event = json.loads(line[6:])
        if dialect == "chat":
            for choice in event["choices"]:
                for call in choice["delta"].get("tool_calls", ()):
                    if "id" in call:
                        calls.append([call["function"]["name"], ""])
                    calls[-1][1] += call["function"].get("arguments", "")
        elif dialect == "responses" and event["type"] == "response.output_item.added":
            if event["item"]["type"] == "function_call":
                calls.append([event["item"]["name"], ""])
        elif event["type"] == "response.function_call_arguments.delta":
            calls[-1][1] += event["delta"]
        elif event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            calls.append([event["content_block"]["name"], ""])
        elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            calls[-1][1] += event["delta"]["partial_json"]
    return [(name, arguments) for name, arguments in calls]


def is_sound(call: Call) -> bool:
    try:
        return call[0] in NAMES and isinstance(json.loads(call[1]), dict)
    except ValueError:
        return False


Answer = tuple[list[int], bool]
"""Token ids, and whether a call was required."""


class Writers:
    """Writes the ids of an answer as the events of each dialect."""

    def __init__(self) -> None:
        folder = ModelFolder.read(MODEL)
        self.tokenizer = Tokenizer(folder.path)
        self.format = ChatFormat(folder, self.tokenizer)
        opening = self.format.family.forced_call(NAMES[0])
        assert opening is not None
        self.opening = self.tokenizer.encode_markup(opening)

    def events(self, ids: Sequence[int], forced: bool, chance: random.Random) -> Iterator[tuple[str, bytes]]:
        for dialect in ("chat", "responses", "messages"):
            pieces, at = [list(self.opening)] if forced else [], 0
            while at < len(ids):
                size = chance.choice((1, 1, 2, 5, 40))
                pieces.append(list(ids[at : at + size]))
                at += size
            yield dialect, self._written(dialect, pieces, ids)

    def counts(self, answers: Sequence[Answer]) -> Counter[str]:
        """Returns the number of calls and of invalid ones in these answers, for each dialect."""
        chance, counts = random.Random(1), Counter[str]()
        for ids, forced in answers:
            counts["answers that begin a call"] += self.begun(ids, forced)
            for dialect, events in self.events(ids, forced, chance):
                note(counts, dialect, calls_in(dialect, events))
        return counts

    def begun(self, ids: Sequence[int], forced: bool) -> bool:
        """Returns whether an answer contains the marker of a call."""
        return forced or self.tokenizer.token_id("<tool_call>") in ids

    def _written(self, dialect: str, pieces: list[list[int]], ids: Sequence[int]) -> bytes:
        parser, answer = self.format.parser(tools=True), Completion([])
        parser.begin([], TOOLS)
        exchange: Any = SimpleNamespace(
            turn=SimpleNamespace(completion_id="x_1", session_id="s", created_at=0.0, prompt_ids=[1]),
            request=SimpleNamespace(
                stream=True,
                log_probs=False,
                return_token_ids=False,
                include_usage=False,
                parallel_tool_calls=True,
            ),
            generation=SimpleNamespace(ids=list(ids), matched=None, cached=0),
            parser=parser,
            unfulfilled=lambda answer: False,
        )
        writer: Any = {
            "chat": lambda: Chunks([exchange], "tiny", self.tokenizer),
            "responses": lambda: ResponseEvents(exchange, "tiny", {}),
            "messages": lambda: MessageEvents(exchange, "tiny", True),
        }[dialect]()
        sampled = [writer.start()]
        for piece in pieces:
            sampled.append(writer.chunk(0, Chunk(answer.add(parser.feed(piece)), None)))
        sampled.append(writer.chunk(0, Chunk(answer.add(parser.finish()), None)))
        answer.complete("stop")
        return b"".join([*sampled, writer.finished(0, answer), writer.end()])


async def sample(url: str, count: int, seconds: float) -> list[Answer]:
    """Returns up to `count` answers, as many as the time allows."""

    async def ask(http: httpx.AsyncClient, number: int) -> Answer:
        body = {**bodies(number)["chat"][1], "stream": False, "return_token_ids": True}
        answer = (await http.post("/v1/chat/completions", json=body)).raise_for_status().json()
        return answer["choices"][0]["token_ids"], number % 2 == 0

    return await _drawn(url, count, seconds, ask)


async def continued(url: str, count: int, seconds: float, call: Sequence[int]) -> list[Answer]:
    """Returns up to `count` answers that begin with a part of `call`; the tokens after it are sampled."""
    async with httpx.AsyncClient(base_url=url, timeout=300.0, trust_env=False) as http:
        body = {**bodies(1)["chat"][1], "stream": False, "return_token_ids": True, "max_tokens": 1}
        prompt = (
            (await http.post("/v1/chat/completions", json=body)).raise_for_status().json()["prompt_token_ids"]
        )

    async def ask(http: httpx.AsyncClient, number: int) -> Answer:
        chance = random.Random(number)
        at, bias = chance.randrange(1, len(call)), chance.choice(BIASES)
        body = {"model": MODEL.name, "temperature": TEMPERATURE, "seed": number, "max_tokens": LONGEST - at}
        body |= {"prompt": [*prompt, *call[:at]], "return_token_ids": True}
        body["logit_bias"] = dict.fromkeys(map(str, call[at:]), bias)
        answer = (await http.post("/v1/completions", json=body)).raise_for_status().json()
        return [*call[:at], *answer["choices"][0]["token_ids"]], False

    return await _drawn(url, count, seconds, ask)


async def _drawn(
    url: str, count: int, seconds: float, ask: Callable[[httpx.AsyncClient, int], Awaitable[Answer]]
) -> list[Answer]:
    drawn: list[Answer] = []
    numbers, until = iter(range(count)), time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=url, timeout=300.0, trust_env=False) as http:

        async def client() -> None:
            for number in numbers:
                if time.monotonic() > until:
                    return
                drawn.append(await ask(http, number))

        await asyncio.gather(*(client() for _ in range(AT_A_TIME)))
    return drawn


async def over_http(url: str, count: int) -> Counter[str]:
    """Returns the number of calls and of invalid ones in `count` streams of each dialect."""
    counts: Counter[str] = Counter()
    numbers = iter(range(count))
    async with httpx.AsyncClient(base_url=url, timeout=300.0, trust_env=False) as http:

        async def client() -> None:
            for number in numbers:
                for dialect, (route, body) in bodies(100_000 + number).items():
                    answer = (await http.post(f"/v1/{route}", json=body)).raise_for_status()
                    note(counts, dialect, calls_in(dialect, answer.content))

        await asyncio.gather(*(client() for _ in range(AT_A_TIME // 3)))
    return counts


def note(counts: Counter[str], dialect: str, calls: Sequence[Call]) -> None:
    counts[f"{dialect} answers"] += 1
    counts[f"{dialect} calls"] += len(calls)
    counts[f"{dialect} unsound"] += sum(not is_sound(call) for call in calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="answers to sample")
    parser.add_argument("--http", type=int, default=100, help="answers over HTTP in each dialect")
    parser.add_argument(
        "--continued", type=int, default=10_000, help="answers that continue a part of a valid call"
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="longest sampling time")
    options = parser.parse_args()
    writers = Writers()
    call = writers.tokenizer.encode_markup(CALL)
    port = free_port()
    command = [sys.executable, "-m", "openclaw.server", "--model-path", str(MODEL), "--port", str(port)]
    command += ["--backend", "embedded", "--standby", "off"]
    with tempfile.TemporaryDirectory():
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if line.startswith("ready:"):
                    break
            url = f"http://127.0.0.1:{port}"
            http = asyncio.run(over_http(url, options.http))
            answers = asyncio.run(sample(url, options.count, options.seconds))
            begun = asyncio.run(continued(url, options.continued, options.seconds, call))
        finally:
            server.terminate()
            server.wait(30)
    counts = {"sampled": writers.counts(answers), "continued": writers.counts(begun), "over HTTP": dict(http)}
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
