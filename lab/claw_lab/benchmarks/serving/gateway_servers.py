"""Runs the servers of the gateway benchmarks and asks the questions: an engine that samples nothing, our gateway that
records all turns, and other gateways."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from claw_base.ports import free_port
from claw_lab import MODEL, ROOT, environment
from claw_lab.benchmarks.serving.fake_engine import PROMPT_TOKENS, TOKENS, fake_engine
from claw_lab.benchmarks.serving.long_talk import TEXT
from claw_lab.benchmarks.serving.peers import MODEL as FAKE_MODEL
from claw_lab.benchmarks.serving.peers import Running, running_peer

CONTEXT = 65_536
REQUEST_CHARACTERS = 2_000

Ask = Callable[[], Awaitable[float]]
"""Asks one new question; returns the seconds."""


def model_folder(parent: Path) -> Path:
    """Creates a folder with the tiny model's tokenizer and a context for long conversations."""
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
    """Starts a process; yields it and its first line, printed when it is ready."""
    words = [sys.executable, *command]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment())
    try:
        assert started.stdout is not None
        yield started, started.stdout.readline()
    finally:
        started.terminate()
        started.wait(30)


@dataclass(frozen=True)
class Servers:
    """The running servers: our gateway, its engine, and other gateways with the same engine."""

    gateway: Running
    engine_url: str
    peers: Mapping[str, Running]


def cpu_s(pid: int) -> float:
    """Returns the processor time of a process and its children, in seconds."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(time.user + time.system for time in times)


class Gateway:
    """Asks questions of a running gateway and of its engine."""

    def __init__(self, servers: Servers, http: aiohttp.ClientSession) -> None:
        self.servers = servers
        self._http = http
        self._numbers = itertools.count()

    def cpu_s(self) -> float:
        return cpu_s(self.servers.gateway.pid)

    async def chat(self, messages: list[dict[str, Any]], **body: Any) -> tuple[float, float, bytes]:
        """Returns (seconds to the first byte of the body, seconds to its end, the body)."""
        return await self._post(self.servers.gateway.url, {"messages": messages, **body})

    async def direct(self) -> float:
        """Asks the engine directly; returns the seconds to the end."""
        body = {
            "input_ids": [5] * PROMPT_TOKENS,
            "sampling_params": {"max_new_tokens": TOKENS},
            "stream": True,
        }
        return (await self._post(f"{self.servers.engine_url}/generate", body))[1]

    async def direct_first(self) -> float:
        body = {
            "input_ids": [5] * PROMPT_TOKENS,
            "sampling_params": {"max_new_tokens": TOKENS},
            "stream": True,
        }
        return (await self._post(f"{self.servers.engine_url}/generate", body))[0]

    async def whole(self) -> float:
        return (await self.chat(self._message()))[1]

    async def stream_first(self) -> float:
        return (await self.chat(self._message(), stream=True))[0]

    def peer(self, name: str) -> Ask:
        """Returns the same question for another gateway."""

        async def ask() -> float:
            body = {"model": FAKE_MODEL, "messages": self._message()}
            return (await self._post(self.servers.peers[name].url, body))[1]

        return ask

    def _message(self) -> list[dict[str, Any]]:
        return [{"role": "user", "content": f"{next(self._numbers)} " + (TEXT * 30)[:REQUEST_CHARACTERS]}]

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


@contextmanager
def running(pause: float, peers: Mapping[str, str]) -> Iterator[Servers]:
    """Starts engine, gateway and other gateways (name -> Python), and yields them when they are ready."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, port = Path(name), free_port()
        engine_url = stack.enter_context(fake_engine(pause))
        flags = ["--model-path", str(model_folder(folder)), "--port", str(port), "--engine-url", engine_url]
        flags += ["--enable-rl-intercept", "--rl-buffer-dir", f"{name}/buffer", "--log-level", "warning"]
        server, line = stack.enter_context(process("-m", "openclaw.server", *flags))
        if not line.startswith("ready:"):
            raise RuntimeError(f"the gateway did not start: {line}")
        ours = Running(server.pid, f"http://127.0.0.1:{port}/v1/chat/completions")
        others = {
            peer: stack.enter_context(running_peer(peer, python, folder / peer, free_port(), engine_url))
            for peer, python in peers.items()
        }
        yield Servers(ours, engine_url, others)
