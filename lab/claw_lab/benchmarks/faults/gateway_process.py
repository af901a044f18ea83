"""Runs a gateway in separate processes, with an engine that samples nothing, and people who talk to it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from claw_base.ports import free_port
from claw_lab import MODEL, environment
from claw_lab.benchmarks.serving.fake_engine import fake_engine
from openclaw.store import RolloutStore
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.scripted_people import People, talk_until

START_S = 120.0
PEOPLE = 4
TOKEN_S = 0.002
OTHER_CLOCK = """
import runpy, time
from pathlib import Path
right, ahead = time.time, Path({!r})
time.time = lambda: right() + float(ahead.read_text() or 0)
runpy.run_module("openclaw.server", run_name="__main__")
"""
DISK_MIB = 4


class CannotHere(Exception):
    """A scenario cannot run on this machine or as this user."""


class GatewayProcess:
    """`python -m openclaw.server` on its own port, recording all turns; `start` starts it.

    Args:
        engine_url: of a running engine.
        buffer: a folder, or the URL of a database.
        log: file to which its output is appended.
        env: further variables.
        files: limit of open files of each process; None: as in this process.
        clock: file with the seconds by which Python's clock in the gateway is ahead of the machine's.
        flags: further flags.
    """

    def __init__(
        self,
        engine_url: str,
        buffer: Path | str,
        log: Path,
        env: Mapping[str, str] | None = None,
        files: int | None = None,
        clock: Path | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.buffer, self.log = buffer, log
        place = ["--rl-buffer-url" if "://" in str(buffer) else "--rl-buffer-dir", str(buffer)]
        own = ["--model-path", str(MODEL), "--engine-url", engine_url, "--port", str(self.port), *place]
        program = ["-m", "openclaw.server"] if clock is None else ["-c", OTHER_CLOCK.format(str(clock))]
        server = [sys.executable, *program, *own, "--enable-rl-intercept", *flags]
        limit = [] if files is None else ["bash", "-c", f'ulimit -n {files} && exec "$@"', "limited"]
        self._command = [*limit, *server]
        self._env = {**environment(), **(env or {})}

    def start(self) -> GatewayProcess:
        """Starts the gateway; returns when it is ready. Raises RuntimeError, with its output, if it exits instead."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                self._command, env=self._env, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("ready: "):
            status = self.process.wait(START_S)
            raise RuntimeError(f"the gateway ended with {status}: {self.log.read_text()[-2000:]}")
        return self

    def kill(self) -> None:
        """Kills all its processes with `kill -9`; processes that it forks meanwhile exit by themselves."""
        family = [psutil.Process(self.process.pid)]
        family += family[0].children(recursive=True)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=START_S)
        self.process.wait(START_S)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(START_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@contextlib.contextmanager
def started(
    folder: Path, buffer: str | None = None, token_s: float = TOKEN_S, **options: Any
) -> Iterator[GatewayProcess]:
    """Starts a gateway that stores in `buffer`, by default a subfolder of `folder`."""
    with fake_engine(token_s) as url:
        gateway = GatewayProcess(url, buffer or folder / "buffer", folder / "gateway.log", **options)
        try:
            yield gateway.start()
        finally:
            gateway.stop()


@contextlib.contextmanager
def disk(place: Path) -> Iterator[None]:
    """Mounts a small disk in memory at `place`."""
    place.mkdir(mode=0o700)
    mount("-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def mount(*words: str) -> None:
    """Mounts the disk; raises CannotHere."""
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotHere(done.stderr.strip() or "mount failed")


@contextlib.asynccontextmanager
async def talking(url: str, seed: int = 0) -> AsyncIterator[People]:
    """Lets four people talk without a pause until the block ends."""
    people, done = People(), asyncio.Event()
    async with ChatClient(url) as client:
        tasks = [asyncio.create_task(talk_until(done, client, seed + n, people)) for n in range(PEOPLE)]
        try:
            yield people
        finally:
            done.set()
            await asyncio.gather(*tasks)


async def answers(people: People, count: int) -> None:
    """Waits for `count` more answers to requests that are sent from now on. Raises TimeoutError."""
    since, known = time.monotonic(), len(people.seen)
    while sum(one.begun > since for one in people.seen[known:]) < count:
        if time.monotonic() > since + START_S:
            raise TimeoutError(f"fewer than {count} answers in {START_S:g} s; {people.failures[-3:]}")
        await asyncio.sleep(0.02)


def compare(seen: Sequence[Any], buffer: Path | str) -> dict[str, int]:
    """Returns the number of completely received answers that are missing from the store, or stored with another
    text."""
    store = RolloutStore(buffer)
    try:
        turns = {one.completion_id: store.turns.get_by_completion(one.completion_id) for one in seen}
    finally:
        store.close()
    texts = {one.completion_id: one.text for one in seen}
    altered = [
        name
        for name, turn in turns.items()
        if turn is not None and (turn.response_message["content"] or "") != texts[name]
    ]
    return {"seen": len(turns), "lost": sum(turn is None for turn in turns.values()), "altered": len(altered)}


def stored(buffer: Path, query: str) -> float:
    """Returns the only number of a query to a store."""
    with contextlib.closing(sqlite3.connect(buffer / "buffer.db")) as database:
        return float(database.execute(query).fetchone()[0])
