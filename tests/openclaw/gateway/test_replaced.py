"""A killed or replaced gateway: no connection is refused, and a planned restart interrupts no stream."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from claw_base.ports import free_port, listen
from openclaw.types import Drop, Judgement, Vote
from tests import ROOT
from tests.fakes.running_gateway import RunningGateway

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="a socket supervisor needs Linux"
)
HELLO = [{"role": "user", "content": "hi there"}]
WISH = "Please write it in plain sentences."
TEXT = "hello there, how are you today? the answer is 42."


def command(gateway: RunningGateway) -> list[str]:
    flags = ["--model-path", str(gateway.model), "--engine-url", gateway.engine.url, "--port", "0"]
    flags += ["--enable-rl-intercept", "--rl-buffer-dir", str(gateway.buffer), "--log-level", "warning"]
    return [sys.executable, "-m", "openclaw.server", *flags]


@pytest.fixture
def server(gateway: RunningGateway) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yields the URL of a gateway in separate processes, on the store and engine of `gateway`, with its process."""
    gateway.says(TEXT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "base")])}
    process = subprocess.Popen(command(gateway), stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().split()[1].removesuffix("/v1")
    finally:
        process.terminate()
        process.wait(20)


def worker(url: str) -> int:
    listed = httpx.get(f"{url}/admin/processes", timeout=20).json()
    return next(int(entry["pid"]) for entry in listed if entry["role"] == "gateway")


def stream(url: str) -> str:
    """Returns the text of a streamed answer. Raises httpx.HTTPError if it breaks off, AssertionError if its end is
    missing."""
    body = {"messages": HELLO, "stream": True}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return "".join(lines)


def test_a_planned_restart_interrupts_none_of_sixteen_streams(
    gateway: RunningGateway, server: tuple[subprocess.Popen[str], str]
) -> None:
    process, url = server
    first = worker(url)
    gateway.engine.pause = 0.4
    with ThreadPoolExecutor(16) as pool:
        open_ones = [pool.submit(stream, url) for _ in range(16)]
        gateway.wait_for(lambda: len(gateway.engine.requests) >= 16)
        assert not any(one.done() for one in open_ones)
        process.send_signal(signal.SIGHUP)
        gateway.wait_for(lambda: worker(url) != first, 60)
        assert all("[DONE]" in one.result() for one in open_ones)
    gateway.engine.pause = 0.0
    assert "[DONE]" in stream(url)
    gateway.wait_for(lambda: psutil.Process(process.pid).children() and not psutil.pid_exists(first), 20)
    assert gateway.store.status.counts()["turns"] == {"captured": 17}


def test_a_killed_gateway_refuses_no_connection_and_the_spare_worker_answers(
    gateway: RunningGateway, server: tuple[subprocess.Popen[str], str]
) -> None:
    process, url = server
    gateway.wait_for(lambda: len(psutil.Process(process.pid).children()) == 2, 30)
    address = url.removeprefix("http://").split(":")
    for _ in range(3):
        killed = worker(url)
        os.kill(killed, signal.SIGKILL)
        until = time.monotonic() + 0.3
        while time.monotonic() < until:  # raises ConnectionRefusedError
            socket.create_connection((address[0], int(address[1])), timeout=20).close()
        assert "[DONE]" in stream(url)
        assert worker(url) != killed


def test_a_preference_is_in_the_prompts_of_a_gateway_started_after_a_kill(
    gateway: RunningGateway,
) -> None:
    gateway.says(TEXT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "base")])}
    process = subprocess.Popen([*command(gateway), "--memory"], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split()[1].removesuffix("/v1")
        gateway.wait_for(lambda: len(psutil.Process(process.pid).children()) == 2, 30)
        body = {"messages": HELLO, "user": "ada"}
        turn = gateway.turn(httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()["id"])
        gateway.store.turns.answer(turn.id, [{"role": "user", "content": "I do not like that."}])
        found = Judgement(
            kind="hint", score=1.0, votes=[Vote(score=1, hint=WISH)], judge="test", hints=[WISH]
        )
        assert gateway.store.judgements.finish(turn.id, [found], Drop("test"))
        killed = worker(url)
        os.kill(killed, signal.SIGKILL)
        turn = gateway.turn(httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()["id"])
        assert turn.memory == [WISH] and WISH in gateway.tokenizer.decode(turn.prompt_ids)
        assert worker(url) != killed
    finally:
        process.terminate()
        process.wait(20)


HELD = """
import os, pathlib, sys, time

here, until = pathlib.Path(__file__).parent, time.monotonic() + 100
if any("openclaw.server" in word for word in sys.orig_argv):
    (here / f"began-{os.getpid()}").touch()
    while (here / "hold").exists() and not (here / f"go-{os.getpid()}").exists() and time.monotonic() < until:
        time.sleep(0.02)
"""
"""A slow program: its start takes as long as a file exists."""


def test_a_spare_takes_over_while_the_next_program_is_slow_to_start(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    gateway.says(TEXT)
    (tmp_path / "sitecustomize.py").write_text(HELD)
    (tmp_path / "processes").mkdir()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "base")])}
    words = [*command(gateway), "--run-dir", str(tmp_path), "--port", str(free_port())]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split()[1].removesuffix("/v1")
        supervisor, began = psutil.Process(process.pid), tmp_path / f"began-{process.pid}"
        # the serving worker, a spare worker, the fd keeper
        gateway.wait_for(lambda: len(supervisor.children()) == 3, 60)
        began.unlink()
        (tmp_path / "hold").touch()
        process.send_signal(signal.SIGHUP)
        gateway.wait_for(lambda: list(tmp_path.glob("began-*")), 60)
        [tried] = tmp_path.glob("began-*")
        served = [worker(url)]
        os.kill(served[0], signal.SIGKILL)
        assert "[DONE]" in stream(url)  # the supervisor continues while the next program starts
        served.append(worker(url))
        gateway.wait_for(
            lambda: len(supervisor.children()) == 4, 60
        )  # a new spare worker, and the new program
        tried.with_name(tried.name.replace("began", "go")).touch()
        gateway.wait_for(began.exists, 60)
        os.kill(served[1], signal.SIGKILL)
        assert "[DONE]" in stream(url)  # there is no supervisor yet
        served.append(worker(url))
        (tmp_path / "hold").unlink()
        gateway.wait_for(lambda: worker(url) not in served, 60)
        assert len(set(served)) == 3 and "[DONE]" in stream(url)
    finally:
        (tmp_path / "hold").unlink(missing_ok=True)
        process.terminate()
        process.wait(60)


def test_a_socket_passed_by_systemd_is_used(gateway: RunningGateway) -> None:
    gateway.says(TEXT)
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        program = (
            "import os, sys\n"
            f"os.dup2({listener.fileno()}, 3)\n"
            "os.set_inheritable(3, True)\n"
            "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n"
            "os.execv(sys.executable, sys.argv[1:])\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program, *command(gateway)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "base")])},
            pass_fds=[listener.fileno()],
        )
    assert process.stdout is not None
    try:
        assert f":{port}/v1" in process.stdout.readline()
        assert "[DONE]" in stream(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(20)


def test_a_stop_during_the_replacement_of_the_program_is_honoured(
    server: tuple[subprocess.Popen[str], str],
) -> None:
    process, _ = server
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (0, -signal.SIGTERM)
