"""A repeated request whose first attempt is still running is the same turn."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from openclaw.engine.generation import EngineRequest
from openclaw.gateway.caller import RequestKey
from openclaw.gateway.gateway import Prompt
from openclaw.gateway.running import InFlight, SharedGeneration
from tests.fakes.running_gateway import RunningGateway

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
TEXT = "hello there, how are you today? the answer is 42."
AGAIN = {"X-Stainless-Retry-Count": "1"}


def ask(gateway: RunningGateway, headers: dict[str, str] | None = None, **body: object) -> dict[str, Any]:
    answer = gateway.http.post(
        "/v1/chat/completions", json={"messages": HELLO, **body}, headers=headers or {}
    )
    assert answer.status_code == 200, answer.text
    if not body.get("stream"):
        whole: dict[str, Any] = answer.json()
        return {"id": whole["id"], "text": whole["choices"][0]["message"]["content"]}
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    return {"id": chunks[0]["id"], "text": text}


@pytest.fixture
def slow(gateway: RunningGateway) -> RunningGateway:
    gateway.says(TEXT)
    gateway.engine.pause = 0.3
    return gateway


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("names", [({}, AGAIN), ({"Idempotency-Key": "k"}, {"Idempotency-Key": "k"})])
def test_a_retry_gets_the_first_requests_answer_from_its_start(
    slow: RunningGateway, stream: bool, names: tuple[dict[str, str], dict[str, str]]
) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, slow, names[0], stream=stream)
        slow.wait_for(lambda: slow.engine.requests)
        time.sleep(0.1)
        second = pool.submit(ask, slow, names[1], stream=stream)
        assert first.result() == second.result()
    assert first.result()["text"] == TEXT and len(slow.engine.requests) == 1
    assert slow.store.status.counts()["turns"] == {"captured": 1}


def test_a_retry_continues_after_the_first_client_disconnects(slow: RunningGateway) -> None:
    ids = slow.says(TEXT)
    slow.engine.pause = 0.4  # time for the second attempt to arrive, even on a busy machine
    with ThreadPoolExecutor(1) as pool:
        with slow.http.stream(
            "POST", "/v1/chat/completions", json={"messages": HELLO, "stream": True}
        ) as first:
            lines = first.iter_lines()
            while "content" not in next(lines):
                pass
            second = pool.submit(ask, slow, AGAIN, stream=True)
            time.sleep(0.6)
        answer = second.result()
    turn = slow.turn(answer["id"])
    assert answer["text"] == TEXT and turn.completion_ids == ids and turn.state == "captured"
    assert turn.version_spans == [(3, 0, len(ids))] and len(turn.completion_log_probs) == len(ids)
    assert slow.store.status.counts()["turns"] == {"captured": 1}


def test_requests_without_a_retry_header_or_with_other_bodies_are_separate_turns(
    slow: RunningGateway,
) -> None:
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(ask, slow)
        slow.wait_for(lambda: slow.engine.requests)
        others = [pool.submit(ask, slow), pool.submit(ask, slow, AGAIN, seed=7)]
        ids = {one.result()["id"] for one in (first, *others)}
    assert len(ids) == 3 and slow.store.status.counts()["turns"] == {"captured": 3}


def test_a_retry_after_the_first_ended_is_answered_again(gateway: RunningGateway) -> None:
    gateway.says(TEXT)
    assert ask(gateway)["id"] != ask(gateway, AGAIN)["id"]


def test_retries_of_a_request_with_a_forced_tool_call_are_joined() -> None:
    request = EngineRequest("request", [1, 2], 9, {}, frozenset())
    engines: Any = SimpleNamespace(preferred=lambda affinity: ["http://engine"])
    key, in_flight = RequestKey(b"digest", repeated=True), InFlight()
    first = in_flight.add(key, SharedGeneration(engines, request, "session", "turn", None))
    opened = first.with_prompt([1, 2, 7], 5)
    assert in_flight.find(key) is opened and opened.turn_id == "turn"
    assert (opened._request.prompt_ids, opened._request.max_new_tokens) == ([1, 2, 7], 5)
    assert opened.request.prompt_ids == [1, 2]


def test_a_joined_retry_is_stored_with_the_prompt_ids_of_the_first_request(
    slow: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the parent is deleted before the second attempt arrives, its prompt would be rendered completely."""
    modes: list[Any] = ["bridge", "full"]
    rendered = slow.app.state.gateway._render

    async def render(*asked: object) -> Prompt:
        return Prompt((await rendered(*asked)).ids, modes.pop(0))

    monkeypatch.setattr(slow.app.state.gateway, "_render", render)
    with ThreadPoolExecutor(1) as pool:
        with slow.http.stream(
            "POST", "/v1/chat/completions", json={"messages": HELLO, "stream": True}
        ) as first:
            lines = first.iter_lines()
            while "content" not in next(lines):
                pass
            second = pool.submit(ask, slow, AGAIN, stream=True)
            slow.wait_for(lambda: not modes)
        turn = slow.turn(second.result()["id"])
    assert turn.state == "captured" and turn.render_mode == "bridge"
