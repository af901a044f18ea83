"""A crashing engine, a disconnecting client, changing weights: the store has exactly the sampled ids."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from openclaw.errors import StoreAway
from openclaw.formats.qwen_parser import Qwen3StreamParser
from openclaw.types import Turn
from tests.fakes.running_gateway import RunningGateway, StartGateway
from tests.fakes.scripted_engine import FakeEngine

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
TEXT = "hello there, how are you today? the answer is 42."


def ask(gateway: RunningGateway, **options: Any) -> Any:
    return gateway.client.chat.completions.create(**{"messages": HELLO, "model": "small-qwen3", **options})


def check_turn(gateway: RunningGateway, turn: Turn, ids: list[int]) -> None:
    assert turn.completion_ids == ids
    assert turn.completion_log_probs == [
        gateway.engine.log_prob(len(turn.prompt_ids) + index + 1, token) for index, token in enumerate(ids)
    ]


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_continues_where_the_engine_died(gateway: RunningGateway, stream: bool) -> None:
    ids = gateway.says(TEXT)
    gateway.engine.die_after = 6
    if stream:
        chunks = list(ask(gateway, stream=True))
        answer_id, text = chunks[0].id, "".join(c.choices[0].delta.content or "" for c in chunks)
    else:
        answer = ask(gateway)
        answer_id, text = answer.id, answer.choices[0].message.content
    assert text == TEXT
    turn = gateway.turn(answer_id)
    check_turn(gateway, turn, ids)
    first, second = gateway.engine.requests
    assert second["input_ids"] == first["input_ids"] + ids[:6]
    room = first["sampling_params"]["max_new_tokens"]
    assert second["sampling_params"]["max_new_tokens"] == room - 6
    assert turn.version_spans == [(3, 0, len(ids))]
    assert turn.state == "captured"


def test_a_request_waits_for_an_engine_that_is_starting(gateway: RunningGateway) -> None:
    ids = gateway.says(TEXT)
    gateway.engine.stop()
    assert gateway.http.get("/readyz").status_code == 503
    assert gateway.http.get("/healthz").status_code == 200
    gateway.engine.start_later(0.5)
    check_turn(gateway, gateway.turn(ask(gateway).id), ids)
    assert gateway.http.get("/readyz").json() == {"ready": True}


def test_an_engine_that_is_unavailable_too_long_causes_a_timeout_and_no_turn(
    start_gateway: StartGateway,
) -> None:
    gateway = start_gateway(request_timeout=0.4)
    gateway.engine.stop()
    answer = gateway.http.post("/v1/chat/completions", json={"messages": HELLO})
    gateway.engine.start()
    assert answer.status_code == 504 and answer.json()["error"]["code"] == "timeout"
    assert gateway.store.status.counts()["turns"] == {}


def test_a_stream_that_times_out_ends_with_an_error_without_done(start_gateway: StartGateway) -> None:
    gateway = start_gateway(request_timeout=0.5)
    gateway.says(TEXT)
    gateway.engine.pause = 0.2
    answer = gateway.http.post("/v1/chat/completions", json={"messages": HELLO, "stream": True})
    assert answer.status_code == 200 and "[DONE]" not in answer.text
    assert json.loads(answer.text.strip().rpartition("data: ")[2])["error"]["code"] == "timeout"
    assert gateway.store.status.counts()["turns"] == {"aborted": 1}


def test_a_turn_during_an_update_has_version_spans(gateway: RunningGateway) -> None:
    ids = gateway.says(TEXT)
    gateway.engine.switch_after = 7
    turn = gateway.turn(ask(gateway).id)
    assert turn.version_spans == [(3, 0, 7), (4, 7, len(ids))]


def test_version_spans_before_and_after_a_restart_and_an_update_are_joined(gateway: RunningGateway) -> None:
    ids = gateway.says(TEXT)
    gateway.engine.die_after, gateway.engine.switch_after = 6, 9
    turn = gateway.turn(ask(gateway).id)
    check_turn(gateway, turn, ids)
    assert turn.version_spans == [(3, 0, 9), (4, 9, len(ids))]


def test_a_disconnected_client_stops_the_engine_and_the_partial_answer_is_stored_as_aborted(
    gateway: RunningGateway,
) -> None:
    ids = gateway.says(TEXT * 20)
    gateway.engine.pause = 0.02
    body = {"messages": HELLO, "stream": True}
    with gateway.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        while "content" not in next(lines):
            pass
    gateway.wait_for(lambda: gateway.store.status.counts()["turns"].get("aborted"))
    gateway.wait_for(lambda: gateway.engine.disconnects and gateway.engine.aborted)
    turn = gateway.turn(gateway.engine.requests[0]["rid"])
    assert 0 < len(turn.completion_ids) < len(ids)
    check_turn(gateway, turn, ids[: len(turn.completion_ids)])
    assert turn.state_reason == "client_left"
    assert turn.response_message["content"] in TEXT * 20


def test_a_client_that_disconnects_from_a_non_streaming_answer_is_noticed(gateway: RunningGateway) -> None:
    gateway.says(TEXT * 20)
    gateway.engine.pause = 0.05
    with pytest.raises(httpx.ReadTimeout):
        gateway.http.post("/v1/chat/completions", json={"messages": HELLO}, timeout=0.3)
    gateway.wait_for(lambda: gateway.store.status.counts()["turns"].get("aborted"))
    gateway.wait_for(lambda: gateway.engine.disconnects)


def test_a_turn_is_stored_before_the_client_reads_its_end(gateway: RunningGateway) -> None:
    gateway.says(TEXT)
    seen = []
    for chunk in ask(gateway, stream=True):
        stored = gateway.turn(chunk.id) is not None
        seen.append((chunk.choices[0].finish_reason is not None, stored))
    assert seen[-1] == (True, True)


def test_an_answer_that_cannot_be_stored_ends_with_an_error(gateway: RunningGateway) -> None:
    gateway.says(TEXT)
    gateway.app.state.gateway.recorder._writer.close()
    whole = gateway.http.post("/v1/chat/completions", json={"messages": HELLO})
    assert whole.status_code == 500 and whole.json()["error"]["code"] == "not_stored"
    stream = gateway.http.post("/v1/chat/completions", json={"messages": HELLO, "stream": True})
    assert "[DONE]" not in stream.text and "not_stored" in stream.text


def test_an_answer_waits_while_the_database_server_is_unreachable(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.says(TEXT)
    store = gateway.app.state.gateway.recorder.store
    tries, record = [], store.turns.record

    def away(turn: Turn, pictures: Any) -> Any:
        tries.append(turn)
        if len(tries) < 4:
            raise StoreAway("the server is stopped")
        return record(turn, pictures)

    monkeypatch.setattr(store.turns, "record", away)
    assert ask(gateway).choices[0].message.content == TEXT
    assert len(tries) == 4 and gateway.store.status.counts()["turns"] == {"captured": 1}


def test_a_deleted_session_can_be_stored_again_after_the_clock_was_set_back(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.says(TEXT)
    gateway.http.delete("/admin/sessions/s/content")
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - 3600)
    gateway.http.post("/v1/chat/completions", json={"messages": HELLO, "session_id": "s"})
    assert gateway.store.status.counts()["turns"] == {"captured": 1}


def test_requests_rejected_by_the_engine_are_client_errors(gateway: RunningGateway) -> None:
    gateway.engine.refuse = "sampling_params.json_schema: not supported"
    body = {"messages": HELLO, "response_format": {"type": "json_object"}, "stream": True}
    answer = gateway.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400 and "json_schema" in answer.json()["error"]["message"]
    assert gateway.store.status.counts()["turns"] == {}


def test_sessions_stay_on_their_engine_and_move_if_it_ends(
    start_gateway: StartGateway, second_engine: FakeEngine
) -> None:
    gateway = start_gateway(engines=(second_engine,))
    gateway.says(TEXT)
    second_engine.say = gateway.engine.say
    for _ in range(2):
        for session in "abcdefgh":
            ask(gateway, extra_headers={"X-Session-Id": session})
    counts = [len(gateway.engine.requests), len(second_engine.requests)]
    assert all(count % 2 == 0 for count in counts) and min(counts) > 0
    gateway.engine.stop()
    for session in "abcdefgh":
        ask(gateway, extra_headers={"X-Session-Id": session})
    assert len(second_engine.requests) == counts[1] + 8
    gateway.engine.start()


def test_an_answer_running_while_its_session_is_deleted_is_not_stored(gateway: RunningGateway) -> None:
    gateway.says(TEXT * 20)
    gateway.engine.pause = 0.02
    body = {"messages": HELLO, "stream": True, "session_id": "s"}
    with gateway.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        while "content" not in next(lines):
            pass
        gateway.http.delete("/admin/sessions/s/content")
        assert "data: [DONE]" in list(lines)
    assert gateway.store.status.counts()["turns"] == {} and gateway.store.sessions.get("s") is None
    gateway.engine.pause = 0.0
    gateway.http.post("/v1/chat/completions", json={"messages": HELLO, "session_id": "s"})
    assert gateway.store.status.counts()["turns"] == {"captured": 1}


@pytest.mark.parametrize("path", ["sessions/s", "persons/ada"])
def test_a_running_answer_does_not_store_again_what_another_worker_deleted(
    start_gateway: StartGateway, path: str
) -> None:
    """As while a gateway is replaced: the old one finishes its streams."""
    old, new = start_gateway(), start_gateway()
    old.says(TEXT)
    body: dict[str, Any] = {"messages": HELLO, "session_id": "s", "user": "ada"}
    said = old.http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    old.says(TEXT * 20)
    old.engine.pause = 0.02
    body["messages"] = [*HELLO, {"role": "assistant", "content": said["content"]}, *HELLO]
    with old.http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as answer:
        lines = answer.iter_lines()
        while "content" not in next(lines):
            pass
        assert new.http.delete(f"/admin/{path}/content").json()["deleted"]["turns"] == 1
        assert "data: [DONE]" in list(lines)
    assert old.store.status.counts()["turns"] == {}


@pytest.mark.parametrize("stream", [False, True])
def test_an_internal_error_is_reported_and_keeps_the_tokens(
    gateway: RunningGateway, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.says(TEXT)
    fed = Qwen3StreamParser.feed

    def fails_late(parser: Qwen3StreamParser, ids: list[int]) -> Any:
        if len(ids) and gateway.engine.say[-2] in ids:
            raise TypeError("what nobody thought of")
        return fed(parser, ids)

    monkeypatch.setattr(Qwen3StreamParser, "feed", fails_late)
    answer = gateway.http.post("/v1/chat/completions", json={"messages": HELLO, "stream": stream})
    assert (
        "internal_error" in answer.text
        and "[DONE]" not in answer.text
        and "nobody thought" not in answer.text
    )
    turn = gateway.turn(gateway.engine.requests[0]["rid"])
    assert (turn.state, turn.state_reason) == ("aborted", "internal_error")
    assert turn.completion_ids == gateway.engine.say[: len(turn.completion_ids)] != []
