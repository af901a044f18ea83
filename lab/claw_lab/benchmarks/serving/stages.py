"""Measures the processor time of one answer by stage of the gateway, and the client's additional waiting time.

`bash lab/run.sh benchmarks.serving.stages` serves from this process with an engine that samples nothing, asks one
question after another from a separate process, and prints one JSON line: ms of each stage, of a question without
history (`alone`), of the same as a stream (`stream`) and of the next turn of a conversation of 12,000 tokens
(`talk`). Stages exclude one another: time in a nested stage counts only for the inner one. `rest` is the time outside
all stages: event loop, routing, sockets. `--report FILE` writes a report; `--against FILE` compares with one, and
exits with 1 if a stage takes a fifth more. Both runs divide by the time of the same reference work, since other
programs change the speed of a processor.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import http.client
import importlib
import inspect
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

from claw_base.ports import listen
from claw_lab import environment
from claw_lab.benchmarks.serving.fake_engine import fake_engine
from claw_lab.benchmarks.serving.gateway_servers import REQUEST_CHARACTERS, model_folder
from claw_lab.benchmarks.serving.long_talk import INTERNAL_CONTEXT, TEXT, long_talk
from openclaw.server import COLLECT_AFTER, _Server, create_app, http_config
from openclaw.settings import load_settings

KINDS = ("alone", "stream", "talk")
WARM_UP = 10
GROWN = 1.2
"""Ratio from which a stage counts as slower."""
LEAST_MS = 0.03
"""Milliseconds below which a difference counts as noise."""
REST = "rest"
PLAIN_WORK = "plain work"
"""Name of the reference work by which both runs are divided."""

_HTTP, _GATEWAY = "openclaw.http", "openclaw.gateway"
STAGES: dict[str, tuple[str, ...]] = {
    "receive": (
        f"{_HTTP}.middleware:HttpProtocol.data_received",
        f"{_HTTP}.middleware:RequestGuard.__call__",
    ),
    "parse": (f"{_HTTP}.dialects.chat:parse_body", f"{_HTTP}.dialects.chat:chat_request"),
    "caller": (f"{_GATEWAY}.caller:Caller.of",),
    "check length": (
        f"{_GATEWAY}.gateway:Gateway._check_length",
        "openclaw.formats.tokenizer:Tokenizer.exceeds",
    ),
    "transcript": (
        f"{_GATEWAY}.chat_request:prefix_keys",
        "openclaw.sessions.transcript:KnownHistories.known",
        "openclaw.sessions.transcript:KnownHistories.transcript",
        "openclaw.sessions.transcript:Transcript.with_answer",
        f"{_GATEWAY}.gateway:is_large",
        f"{_GATEWAY}.gateway:next_state",
    ),
    "find parent": (
        f"{_GATEWAY}.recorder:Recorder.find_parent",
        f"{_GATEWAY}.recorder:Recorder._find_parent",
    ),
    "wishes": (f"{_GATEWAY}.gateway:active_preferences",),
    "render": (
        f"{_GATEWAY}.gateway:Gateway._render",
        "openclaw.formats.rendering:ChatFormat.render",
        "openclaw.formats.rendering:ChatFormat.bridge",
    ),
    "engine call": (
        "openclaw.engine.generation:Generation.run",
        "openclaw.engine.client:StreamedAnswers.read",
        "aiohttp.client_proto:ResponseHandler.data_received",
    ),
    "parse answer": (
        "openclaw.formats.qwen_parser:Qwen3StreamParser.feed",
        "openclaw.formats.qwen_parser:Qwen3StreamParser.finish",
        f"{_GATEWAY}.exchange:Completion.add",
    ),
    "record": (f"{_GATEWAY}.recorder:Recorder.record", f"{_GATEWAY}.recorder:Recorder.answer_soon"),
    "pack": ("openclaw.store.turns:body_row",),
    "commit": ("openclaw.store.database:StoreWriter._commit",),
    "send": (
        f"{_HTTP}.response:AnswerResponse._emit",
        f"{_HTTP}.response:_send_json",
        f"{_HTTP}.dialects.chat:Whole.end",
        f"{_HTTP}.dialects.chat:Chunks.chunk",
    ),
}
"""Names under which the functions of each stage are looked up when they are called."""


class Watch:
    """Sums processor time by stage, over all threads."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._all: list[Counter[str]] = []

    def enter(self, stage: str) -> None:
        stack, spent = self._of_this_thread()
        self._charge(stack, spent)
        stack.append(stage)

    def leave(self) -> None:
        stack, spent = self._of_this_thread()
        self._charge(stack, spent)
        stack.pop()

    @contextmanager
    def inside(self, stage: str) -> Generator[None]:
        self.enter(stage)
        try:
            yield
        finally:
            self.leave()

    def spent(self) -> Counter[str]:
        """Returns the seconds by stage so far."""
        return sum(self._all, Counter[str]())

    def _of_this_thread(self) -> tuple[list[str], Counter[str]]:
        if not hasattr(self._local, "stack"):
            self._local.stack, self._local.spent, self._local.last = [], Counter(), 0.0
            self._all.append(self._local.spent)
        return self._local.stack, self._local.spent

    def _charge(self, stack: list[str], spent: Counter[str]) -> None:
        now = time.thread_time()
        if stack:
            spent[stack[-1]] += now - self._local.last
        self._local.last = now


class _Steps:
    """An awaitable whose steps count for a stage, without the time between them."""

    def __init__(self, watch: Watch, stage: str, inner: Awaitable[Any]) -> None:
        self._watch, self._stage, self._inner = watch, stage, inner

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._inner.__await__()
        send: Callable[[], Any] = functools.partial(next, steps)
        while True:
            try:
                with self._watch.inside(self._stage):
                    yielded = send()
            except StopIteration as end:
                return end.value
            try:
                got = yield yielded
                send = functools.partial(steps.send, got)
            except BaseException as error:
                send = functools.partial(steps.throw, error)


async def _each(watch: Watch, stage: str, source: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        while True:
            try:
                one = await _Steps(watch, stage, source.__anext__())
            except StopAsyncIteration:
                return
            yield one
    finally:
        await _Steps(watch, stage, source.aclose())


def watched(watch: Watch, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with its time counted for a stage."""
    if inspect.isasyncgenfunction(function):

        def instead(*words: Any, **named: Any) -> Any:
            return _each(watch, stage, function(*words, **named))

    elif inspect.iscoroutinefunction(function):

        async def instead(*words: Any, **named: Any) -> Any:
            return await _Steps(watch, stage, function(*words, **named))

    else:

        def instead(*words: Any, **named: Any) -> Any:
            with watch.inside(stage):
                return function(*words, **named)

    return functools.wraps(function)(instead)


def places() -> Iterator[tuple[str, Any, str]]:
    """Yields (stage, object that holds the function, its name there) for each function of STAGES."""
    for stage, names in STAGES.items():
        for place in names:
            module, _, name = place.partition(":")
            *owners, last = name.split(".")
            yield stage, functools.reduce(getattr, owners, importlib.import_module(module)), last


def install(watch: Watch) -> None:
    """Measures all functions of STAGES from now on. Raises AttributeError if one does not exist."""
    for stage, owner, name in places():
        original = inspect.getattr_static(owner, name)
        if isinstance(original, classmethod):
            setattr(owner, name, classmethod(watched(watch, stage, original.__func__)))
        else:
            setattr(owner, name, watched(watch, stage, original))


def plain_work_ms() -> float:
    """Returns the processor time of constant work, half interpreted and half compiled."""
    times = []
    for _ in range(9):
        began = time.thread_time()
        words = [str(n) for n in range(2_000)]
        counts = Counter(word[-1] for word in words)
        zlib.compress(" ".join(words).encode() * 2, counts["1"] % 2 + 1)
        times.append(time.thread_time() - began)
    return statistics.median(times) * 1e3


class Asker:
    """Asks questions of one kind over one connection."""

    def __init__(self, url: str, kind: str) -> None:
        self._http = http.client.HTTPConnection(urlsplit(url).netloc)
        self._kind = kind
        self._talk, self._tools = long_talk()
        self._number = 0

    def ask(self) -> float:
        """Returns the seconds until the answer is complete."""
        self._number += 1
        body = json.dumps(self._body()).encode()
        began = time.perf_counter()
        self._http.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        data = answer.read()
        seconds = time.perf_counter() - began
        if answer.status != 200:
            raise RuntimeError(data.decode())
        if self._kind == "talk":
            self._talk.append(json.loads(data)["choices"][0]["message"])
        return seconds

    def _body(self) -> dict[str, Any]:
        if self._kind == "talk":
            text = f"[Sat 2026-11-21 03:00 UTC] and {self._number}?"
            self._talk.append({"role": "user", "content": text})
            messages = [*self._talk, {"role": "user", "content": INTERNAL_CONTEXT}]
            return {"messages": messages, "tools": self._tools, "session_id": "talk"}
        question = f"{self._number} " + (TEXT * 30)[:REQUEST_CHARACTERS]
        return {"messages": [{"role": "user", "content": question}], "stream": self._kind == "stream"}


def ask_all(url: str, count: int) -> None:
    """Runs the client's process. It prints a line before and after each kind, and waits for an input line before it
    counts."""
    for kind in KINDS:
        asker = Asker(url, kind)
        for _ in range(WARM_UP):
            asker.ask()
        print("warm", flush=True)
        sys.stdin.readline()
        print(statistics.median([asker.ask() for _ in range(count)]), flush=True)


async def measure(url: str, count: int, watch: Watch) -> dict[str, float]:
    """Measures a gateway that runs in this process; see the module."""
    words = [sys.executable, "-m", "claw_lab.benchmarks.serving.stages", "--ask", url, "--count", str(count)]
    pipe = subprocess.PIPE
    client = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, env=environment())
    assert client.stdin is not None and client.stdout is not None
    milliseconds = {PLAIN_WORK: plain_work_ms()}
    for kind in KINDS:
        if not await client.stdout.readline():
            raise RuntimeError("the client failed")
        before, began = watch.spent(), time.process_time()
        client.stdin.write(b"\n")
        waited = float(await client.stdout.readline()) * 1e3
        whole = (time.process_time() - began) / count * 1e3
        after = watch.spent()
        stages = {stage: (after[stage] - before[stage]) / count * 1e3 for stage in STAGES}
        stages[REST] = whole - sum(stages.values())
        milliseconds |= {f"{kind} {stage}": value for stage, value in stages.items()}
        milliseconds |= {f"{kind} processor": whole, f"{kind} waiting": max(0.0, waited - whole)}
    await client.wait()
    milliseconds[PLAIN_WORK] = min(milliseconds[PLAIN_WORK], plain_work_ms())
    return milliseconds


async def serve_and_measure(folder: Path, engine_url: str, count: int, watch: Watch) -> dict[str, float]:
    words = ["--model-path", str(model_folder(folder)), "--engine-url", engine_url, "--enable-rl-intercept"]
    settings = load_settings(
        [*words, "--rl-buffer-dir", str(folder / "buffer"), "--log-level", "warning"], {}
    )
    with listen("127.0.0.1", 0) as listener:
        app = create_app(settings, settings.engine_url)
        server = _Server(http_config(settings, app))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await app.state.gateway.engines.wait_ready()
            gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
            gc.freeze()  # as the socket supervisor does

            return await measure(f"http://127.0.0.1:{listener.getsockname()[1]}", count, watch)
        finally:
            server.stop()
            await serving


def run(count: int) -> dict[str, float]:
    """Returns milliseconds by name."""
    watch = Watch()
    install(watch)
    with tempfile.TemporaryDirectory() as name, fake_engine() as engine_url:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve_and_measure(Path(name), engine_url, count, watch))


def report(milliseconds: Mapping[str, float], count: int) -> dict[str, Any]:
    """Returns the content of a file of lab/reports; a stream differs from a whole answer only in `send`."""
    return {
        "date": date.today().isoformat(),
        "title": "Processor time of an answer, by stage",
        "command": f"bash lab/run.sh benchmarks.serving.stages --count {count}",
        "conditions": {"setting": "store on, answers of 64 tokens, one client; alone: 2 KB, talk: 12,000 tokens"},
        "measurements": [
            {"id": name.replace(" ", "-"), "metric": name, "value": round(value, 3), "unit": "ms"}
            for name, value in milliseconds.items() if not name.startswith("stream")
        ],
    }  # fmt: skip


def grown(milliseconds: Mapping[str, float], earlier: Mapping[str, float]) -> list[str]:
    """Returns the stages that take a fifth more processor time than in an earlier run, each relative to the reference
    work."""
    faster = milliseconds[PLAIN_WORK] / earlier[PLAIN_WORK]
    return [
        f"{name}: {value:.3f} ms, {earlier[name] * faster:.3f} ms before"
        for name, value in milliseconds.items()
        if name in earlier and name != PLAIN_WORK and not name.endswith("waiting")
        if value > GROWN * faster * earlier[name] and value - faster * earlier[name] > LEAST_MS
    ]


def earlier_numbers(file: Path) -> dict[str, float]:
    """Returns the numbers of a report by name."""
    return {row["metric"]: float(row["value"]) for row in json.loads(file.read_text())["measurements"]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200, help="questions of each kind")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a report to this file")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with the report in this file")
    parser.add_argument("--ask", metavar="URL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ask:
        ask_all(args.ask, args.count)
        return 0
    milliseconds = run(args.count)
    print(json.dumps({name: round(value, 3) for name, value in milliseconds.items()}))
    if args.report:
        args.report.write_text(
            json.dumps(report(milliseconds, args.count), indent=2, ensure_ascii=False) + "\n"
        )
    more = grown(milliseconds, earlier_numbers(args.against)) if args.against else []
    print("\n".join(more), file=sys.stderr)
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
