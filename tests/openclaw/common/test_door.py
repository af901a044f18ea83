"""A door with small workers: the port stays open whoever is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from openclaw.common.ports import free_port
from tests import ROOT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a door needs Linux")
COPIES = {
    "openclaw.common.door": "openclaw/common/door",
    "slime.processes.door": "slime/slime/processes/door",
}
PROGRAM = """
import asyncio, os, sys
from openclaw.common.door.door import Door
from openclaw.common.door.post import take_over
from openclaw.common.ports import listen

port, watched_as, build_s = int(sys.argv[1]), sys.argv[2] or None, float(sys.argv[3])

async def answer(reader, writer):
    answering.add(asyncio.current_task())
    words = (await reader.readline()).split()
    if words and words[0] == b"wait":
        await asyncio.sleep(1.0)
    writer.write(b"%d\\n" % os.getpid())
    await writer.drain()
    writer.close()
    answering.discard(asyncio.current_task())

answering = set()

async def life(post):
    await asyncio.sleep(build_s)
    post.built()
    await post.wait_for_turn()
    server = await asyncio.start_server(answer, sock=door.listener.dup())
    post.serving()
    await post.wait_for_finish(door.listener)
    server.close()
    while answering:
        await asyncio.sleep(0.01)

def work(post):
    if build_s < 0:
        post.refuse("error: this can never work")
        return 2
    asyncio.run(life(post))
    return 0

earlier = take_over(watched_as) if watched_as else None
door = Door(listen("127.0.0.1", port) if earlier is None else earlier[0], work, watched_as=watched_as)
if earlier is not None:
    door.inherit(*earlier[1:])
sys.exit(door.run())
"""


@pytest.fixture
def port() -> int:
    return free_port()


@contextmanager
def a_door(port: int, watched_as: str = "", build_s: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM, str(port), watched_as, str(build_s)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    door = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    try:
        yield door
    finally:
        if door.poll() is None:
            door.terminate()
            door.wait(20)


def ask(port: int, line: bytes = b"hello\n") -> int:
    """Connects once; returns the pid of who answered. Raises OSError, ValueError for no answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(line)
        return int(connection.makefile().readline())


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """A zombie has: who adopts orphans here may not ask for their exit status."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def answers(port: int) -> bool:
    try:
        return ask(port) > 0
    except (OSError, ValueError):
        return False


def test_connections_wait_and_none_is_refused_while_the_worker_is_killed_again_and_again(port: int) -> None:
    refused: list[OSError] = []
    served: set[int] = set()
    over = threading.Event()

    def knock() -> None:
        while not over.is_set():
            try:
                served.add(ask(port))
            except ConnectionRefusedError as error:
                refused.append(error)
            except (OSError, ValueError):
                pass  # the one that answered was killed meanwhile

    with a_door(port):
        until(lambda: answers(port))
        knocking = [threading.Thread(target=knock) for _ in range(3)]
        for thread in knocking:
            thread.start()
        for _ in range(5):
            os.kill(ask(port), signal.SIGKILL)
            until(lambda: answers(port))
        over.set()
        for thread in knocking:
            thread.join()
    assert refused == [] and len(served) >= 5


def test_a_spare_that_is_built_takes_over_at_once(port: int) -> None:
    with a_door(port, build_s=1.0) as door:
        until(lambda: answers(port))
        first = ask(port)
        until(lambda: len(psutil.Process(door.pid).children()) == 2)
        time.sleep(2.0)
        os.kill(first, signal.SIGKILL)
        began = time.monotonic()
        assert ask(port) != first
        assert time.monotonic() - began < 0.9  # building one takes longer


def test_a_killed_door_leaves_its_worker_serving_and_the_next_door_gets_the_socket(port: int) -> None:
    name = f"test-{port}"
    with a_door(port, name) as killed:
        until(lambda: answers(port))
        first = ask(port)
        killed.kill()
        killed.wait(10)
        assert ask(port) == first
        with a_door(port, name) as door:
            until(lambda: ask(port) != first)
            until(lambda: has_ended(first))
            assert psutil.Process(ask(port)).ppid() == door.pid
        until(lambda: not answers(port))


def test_an_answer_that_was_begun_is_finished_when_another_door_takes_over(port: int) -> None:
    name = f"test-{port}"
    with a_door(port, name) as killed:
        until(lambda: answers(port))
        first = ask(port)
        killed.kill()
        got: list[int] = []
        waiting = threading.Thread(target=lambda: got.append(ask(port, b"wait\n")))
        waiting.start()
        with a_door(port, name):
            until(lambda: ask(port) != first)
            waiting.join(10)
    assert got == [first]


def test_workers_end_with_a_door_that_nobody_watches(port: int) -> None:
    with a_door(port) as door:
        until(lambda: answers(port))
        until(lambda: len(psutil.Process(door.pid).children()) == 2)
        workers = psutil.Process(door.pid).children()
        door.kill()
        assert psutil.wait_procs(workers, timeout=5)[1] == []


def test_a_first_worker_that_refuses_ends_the_door_with_its_reason(port: int) -> None:
    with a_door(port, build_s=-1.0) as door:
        assert door.wait(20) == 2
        assert door.stderr is not None and "error: this can never work" in door.stderr.read()


def test_both_copies_of_the_door_are_the_same() -> None:
    texts = []
    for package, folder in COPIES.items():
        files = {path.name: path.read_text() for path in sorted(Path(ROOT / folder).glob("*.py"))}
        texts.append({name: text.replace(package, "door") for name, text in files.items()})
    assert texts[0] == texts[1]
