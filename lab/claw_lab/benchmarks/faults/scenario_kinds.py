"""Fault scenarios of one machine while four people talk, each a function of an empty folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from claw_base.ports import free_port
from claw_lab import ROOT
from claw_lab.benchmarks.faults.availability_probe import AvailabilityProbe
from claw_lab.benchmarks.faults.gateway_process import (
    START_S,
    CannotHere,
    answers,
    compare,
    disk,
    mount,
    started,
    stored,
    talking,
)
from claw_lab.benchmarks.faults.postgresql import PostgresServer
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.real_loop import Loop, running_loop
from openclaw_test.loop.scripted_people import People

A_FEW = 12
"""Number of answers before, during and after a fault scenario."""
STREAMS = 16
SLOW_TOKEN_S = 0.05
DOWN_S = 3.0
"""Seconds for which the database server is stopped."""
FILES = 256
CONNECTIONS = 400
Result = dict[str, Any]


def request_counts(people: People, probe: AvailabilityProbe | None = None) -> Result:
    """Returns the counts of answers and failures, and the longest answer in seconds."""
    kinds = Counter(_kind(failure) for _, failure in people.failures)

    waits = [one.ended - one.begun for one in people.seen]
    counts: Result = {"answers": len(people.seen), "failed": dict(kinds), "longest_s": round(max(waits), 2)}
    return counts if probe is None else counts | {"refused": len(probe.refused)}


def _kind(failure: str) -> str:
    """Returns the code of an error, or the beginning of its text."""
    code = re.search(r"[\"']code[\"']: ?[\"'](\w+)", failure)
    return code[1] if code else failure[:60]


async def postgresql(folder: Path) -> Result:
    """Stops the database server for some seconds and starts it, twice."""
    try:
        server = PostgresServer()
    except FileNotFoundError as error:
        raise CannotHere(str(error)) from error
    try:
        with started(folder, server.url) as gateway, AvailabilityProbe(gateway.port) as probe:
            async with talking(gateway.url) as people:
                await answers(people, A_FEW)
                for _ in range(2):
                    await asyncio.to_thread(server.stop)
                    await asyncio.sleep(DOWN_S)
                    await asyncio.to_thread(server.start)
                    await answers(people, A_FEW)
        return request_counts(people, probe) | compare(people.seen, server.url)
    finally:
        server.remove()


async def postgresql_of_a_loop(folder: Path) -> Result:
    """Does the same under the whole loop, which must continue to train."""
    try:
        server = PostgresServer()
    except FileNotFoundError as error:
        raise CannotHere(str(error)) from error
    env = {"RL_BUFFER_URL": server.url, "PYTHONPATH": ""}
    try:
        with running_loop(folder / "run", START_S, env=env) as loop, AvailabilityProbe(loop.port) as probe:
            async with talking(loop.url) as people:
                await answers(people, A_FEW)
                await asyncio.to_thread(server.stop)
                await asyncio.sleep(DOWN_S)
                await asyncio.to_thread(server.start)
                await answers(people, A_FEW)
                await asyncio.to_thread(_newer_weights, loop)
        return request_counts(people, probe) | compare(people.seen, server.url)
    finally:
        server.remove()


def _newer_weights(loop: Loop) -> None:
    """Waits until a newer version is live. Raises TimeoutError."""
    before = loop.status()["weight_version"]
    loop.wait_for(lambda: loop.status()["weight_version"] > before, START_S, "training after it")


async def clock(folder: Path) -> Result:
    """Sets the clock one hour ahead, two hours back, and right again."""
    offset = folder / "offset"
    offset.write_text("0")
    with started(folder, clock=offset) as gateway, AvailabilityProbe(gateway.port) as probe:
        async with talking(gateway.url) as people:
            for seconds in ("0", "3600", "-3600", "0"):
                offset.write_text(seconds)
                await answers(people, A_FEW)
    moved = stored(folder / "buffer", "SELECT max(created_at) - min(created_at) FROM turn")
    return (
        request_counts(people, probe) | compare(people.seen, gateway.buffer) | {"clock_moved_s": round(moved)}
    )


async def full_disk(folder: Path) -> Result:
    """Fills the disk of the buffer for two seconds."""
    with disk(folder / "buffer"), started(folder) as gateway, AvailabilityProbe(gateway.port) as probe:
        ballast = folder / "buffer" / "ballast"
        async with talking(gateway.url) as people:
            await answers(people, A_FEW)
            before = len(people.failures)
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
            while len(people.failures) < before + A_FEW:
                await asyncio.sleep(0.02)
            ballast.unlink()
            await answers(people, A_FEW)
        return request_counts(people, probe) | compare(people.seen, gateway.buffer)


async def read_only(folder: Path) -> Result:
    """Starts a gateway on a read-only folder, then makes the folder writable."""
    with disk(folder / "buffer"):
        with started(folder) as gateway:
            async with talking(gateway.url) as people:
                await answers(people, A_FEW)
        mount("-o", "remount,ro", str(folder / "buffer"))
        refusal = ""
        try:
            gateway.start().stop()
        except RuntimeError as error:
            refusal = str(error).strip().splitlines()[-1]
        mount("-o", "remount,rw", str(folder / "buffer"))
        with started(folder) as again:
            async with talking(again.url, seed=100) as more:
                await answers(more, A_FEW)
        seen = [*people.seen, *more.seen]
        return request_counts(more) | {"refusal": refusal[-200:]} | compare(seen, gateway.buffer)


async def descriptors(folder: Path) -> Result:
    """Limits each process to 256 open files while 400 idle connections are open."""
    with started(folder, files=FILES) as gateway:
        async with talking(gateway.url) as people:
            await answers(people, A_FEW)
            idle = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(CONNECTIONS)]
            await answers(people, A_FEW)
            for connection in idle:
                connection.close()
            with AvailabilityProbe(gateway.port) as probe:
                await answers(people, A_FEW)
        return request_counts(people, probe) | compare(people.seen, gateway.buffer)


async def cut_log(folder: Path) -> Result:
    """Kills all processes and removes the second half of SQLite's write-ahead log; the turns in it are lost."""
    with started(folder) as gateway:
        async with talking(gateway.url) as people:
            await answers(people, A_FEW)
            await asyncio.to_thread(gateway.kill)
    cut = folder / "cut"
    shutil.copytree(folder / "buffer", cut, ignore=shutil.ignore_patterns("*-shm"))
    log = cut / "buffer.db-wal"
    os.truncate(log, log.stat().st_size // 2)
    with started(folder, str(cut)) as gateway:
        async with talking(gateway.url, seed=100) as more:
            await answers(more, A_FEW)
    damage = "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check != 'ok'"
    halves = "SELECT count(*) FROM turn WHERE id NOT IN (SELECT turn_id FROM turn_body)"
    sound = stored(cut, damage) == 0 and stored(cut, halves) == 0
    lost = compare(people.seen, cut)["lost"]
    return request_counts(more) | compare(more.seen, cut) | {"sound": sound, "lost_with_the_log": lost}


async def two_launchers(folder: Path) -> Result:
    """Starts a run in a folder in which another one runs."""
    return await asyncio.to_thread(_launch_twice, folder)


def _launch_twice(folder: Path) -> Result:
    with running_loop(folder / "run", START_S, env={"PYTHONPATH": ""}) as loop:
        other_port, same_command = start_again(loop, free_port()), start_again(loop, loop.port)
    refused = other_port["status"] and same_command["status"]
    undisturbed = other_port["undisturbed"] and same_command["undisturbed"]
    return other_port | {"undisturbed": undisturbed, "refusal": other_port["refusal"] if refused else ""}


def start_again(loop: Loop, port: int) -> Result:
    """Runs the launch script once more in the folder of a loop; returns its result, and whether the loop
    continues."""
    serving = loop.pids("gateway")
    second = subprocess.run(
        ["bash", str(loop.script)], env={**loop.env, "PORT": str(port)}, cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    ask = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
    answer = httpx.post(f"{loop.url}/v1/chat/completions", json=ask, timeout=60.0)
    undisturbed = answer.status_code == 200 and loop.pids("gateway") == serving
    lines = second.stderr.strip().splitlines() or [""]
    return {"status": second.returncode, "refusal": lines[-1][-200:], "undisturbed": undisturbed}


async def planned_restart(folder: Path) -> Result:
    """Sends SIGHUP while sixteen answers stream."""
    with started(folder, token_s=SLOW_TOKEN_S) as gateway, AvailabilityProbe(gateway.port) as probe:
        async with ChatClient(gateway.url) as client:
            ask = [{"role": "user", "content": "hello"}]
            streams = [asyncio.create_task(client.chat(ask)) for _ in range(STREAMS)]
            await asyncio.sleep(10 * SLOW_TOKEN_S)
            gateway.process.send_signal(signal.SIGHUP)
            results = await asyncio.gather(*streams)
            after = await client.chat(ask)
    broken = sum(answer.error is not None for answer in [*results, after])
    return {"streams": STREAMS, "broken": broken, "refused": len(probe.refused)}


SCENARIOS: dict[str, Callable[[Path], Awaitable[Result]]] = {
    "planned restart": planned_restart,
    "PostgreSQL stopped": postgresql,
    "PostgreSQL of a whole loop stopped": postgresql_of_a_loop,
    "clock set": clock,
    "disk full": full_disk,
    "read-only": read_only,
    "256 descriptors": descriptors,
    "log cut": cut_log,
    "two launchers": two_launchers,
}
