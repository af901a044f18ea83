"""Several engines of one gateway, and several gateways on one store and run folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw.types import Turn
from tests import ROOT
from tests.fakes.running_gateway import RunningGateway, StartGateway
from tests.fakes.scripted_engine import FakeEngine

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def ask(gateway: RunningGateway, messages: list[Any] = HELLO, **body: object) -> Any:
    answer = gateway.http.post("/v1/chat/completions", json={"messages": messages, **body})
    assert answer.status_code == 200, answer.text
    return gateway.turn(answer.json()["id"])


def follow(turn: Turn, text: str) -> list[Any]:
    return [*turn.messages, turn.response_message, {"role": "user", "content": text}]


def test_a_conversation_continues_at_any_gateway(start_gateway: StartGateway, tmp_path: Path) -> None:
    one, two = (start_gateway(run_dir=str(tmp_path)) for _ in range(2))
    one.says("hi")
    first = ask(one)
    second = ask(two, follow(first, "and now?"))
    third = ask(one, follow(second, "thanks"))
    assert [turn.parent_id for turn in (second, third)] == [first.id, second.id]
    assert [turn.turn_index for turn in (first, second, third)] == [0, 1, 2]
    two.wait_for(lambda: one.store.status.counts()["turns"] == {"answered": 2, "captured": 1})


def test_several_gateways_count_each_turn_of_a_session_once(start_gateway: StartGateway) -> None:
    gateways = [start_gateway() for _ in range(3)]
    gateways[0].says("hi")
    with ThreadPoolExecutor(6) as pool:
        turns = list(pool.map(lambda n: ask(gateways[n % 3], session_id="s"), range(18)))
    assert sorted(turn.turn_index for turn in turns) == list(range(18))
    assert gateways[1].store.sessions.get("s").turns == 18


def test_an_unreachable_engine_is_not_tried_first_again(
    start_gateway: StartGateway, second_engine: FakeEngine
) -> None:
    gateway = start_gateway(engines=(second_engine,))
    second_engine.say = gateway.says("hi")
    engines = gateway.app.state.gateway.engines
    gone, other = gateway.engine, second_engine
    session = next(str(n) for n in range(100) if engines.preferred(str(n))[0] == gone.url)
    gone.stop()
    ask(gateway, session_id=session)
    restarts = engines.restarts
    assert restarts == 1 and engines.preferred(session)[0] == other.url
    began = time.monotonic()
    ask(gateway, session_id=session)
    assert engines.restarts == restarts and time.monotonic() - began < 1
    gone.start()


def test_an_answer_started_on_one_engine_is_finished_on_another(
    start_gateway: StartGateway, second_engine: FakeEngine
) -> None:
    gateway = start_gateway(engines=(second_engine,))
    ids = gateway.says("hello there, how are you today? the answer is 42.")
    engines = gateway.app.state.gateway.engines
    session = next(str(n) for n in range(100) if engines.preferred(str(n))[0] == gateway.engine.url)
    gateway.engine.die_after, gateway.engine.down = 6, 3.0
    second_engine.say = ids[6:]
    turn = ask(gateway, session_id=session)
    assert turn.completion_ids == ids
    assert second_engine.requests[0]["input_ids"][-6:] == ids[:6]


Process = tuple[subprocess.Popen[str], httpx.Client]


@pytest.fixture
def two_processes(gateway: RunningGateway) -> Iterator[tuple[Process, Process]]:
    """Yields two gateways in separate processes, on the store and engine of `gateway`."""
    flags = ["--model-path", str(gateway.model), "--engine-url", gateway.engine.url, "--port", "0"]
    flags += ["--enable-rl-intercept", "--rl-buffer-dir", str(gateway.buffer), "--log-level", "warning"]
    command = [sys.executable, "-m", "openclaw.server", *flags]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "base")])}
    one, two = (subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(2))
    try:
        yield (one, client_of(one)), (two, client_of(two))
    finally:
        for process in (one, two):
            process.kill()
            process.wait(30)


def client_of(process: subprocess.Popen[str]) -> httpx.Client:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready: "), line
    return httpx.Client(base_url=line.split()[1].removesuffix("/v1"), timeout=20)


def test_processes_share_conversations_and_a_death_affects_no_other(
    gateway: RunningGateway, two_processes: tuple[Process, Process]
) -> None:
    ids = gateway.says("hello there, how are you today? the answer is 42.")
    (doomed, one), (_, two) = two_processes
    talk, turns = list(HELLO), []
    for client in (one, two, one, two):
        answer = client.post("/v1/chat/completions", json={"messages": talk}).json()
        turns.append(gateway.turn(answer["id"]))
        talk = [*talk, answer["choices"][0]["message"], {"role": "user", "content": f"{len(turns)}?"}]
    gateway.engine.pause = 0.1
    with one.stream("POST", "/v1/chat/completions", json={"messages": HELLO, "stream": True}) as cut:
        lines = cut.iter_lines()
        while "content" not in next(lines):
            pass
        with ThreadPoolExecutor(1) as pool:
            whole = pool.submit(lambda: two.post("/v1/chat/completions", json={"messages": HELLO}).json())
            gateway.wait_for(lambda: len(gateway.engine.requests) == 6)
            doomed.send_signal(signal.SIGKILL)
            stored = gateway.turn(whole.result()["id"])
        with pytest.raises(httpx.HTTPError):
            list(lines)
    assert stored.completion_ids == ids
    assert [turn.parent_id for turn in turns[1:]] == [turn.id for turn in turns[:-1]]
    assert {turn.session_id for turn in turns} == {turns[0].session_id}
    assert gateway.store.status.counts()["turns"] == {"answered": 3, "captured": 2}
