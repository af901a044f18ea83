"""A deletion returns after the last use of the deleted words: no prompt with them reaches an engine later."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from openclaw.forget.__main__ import main
from openclaw.gateway import canaries, running
from openclaw.gateway.canaries import LiveModel
from openclaw.gateway.running import Use, UsesInProgress
from openclaw.types import Drop, Judgement
from openclaw.views.source import TRIES
from tests.fakes.running_gateway import KEY, RunningGateway, StartGateway

WORD = "bluewhale"
CHAT, CONTENT = "/v1/chat/completions", "/admin/persons/ada/content"


def asked(gateway: RunningGateway, person: str, **fields: Any) -> httpx.Response:
    messages = [{"role": "user", "content": f"{WORD} of {person}"}]
    return gateway.http.post(CHAT, json={"messages": messages, "user": person, "max_tokens": 40, **fields})


def prompts(gateway: RunningGateway) -> list[str]:
    """Returns the prompts that the engine got, with the person's name after the word."""
    return [gateway.tokenizer.decode(one["input_ids"]) for one in gateway.engine.requests]


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    return thread, results


@pytest.fixture
def gateway(start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch) -> RunningGateway:
    monkeypatch.setenv("OPENCLAW_ADMIN_KEY", KEY)
    monkeypatch.setattr(canaries, "LOOK_SECONDS", 0.02)
    found = start_gateway(memory=True)
    found.says("one two three four five six seven eight nine ten")
    return found


def with_preference(gateway: RunningGateway) -> None:
    """Stores a preference of ada, which the gateway then tests."""
    turn = gateway.turn(asked(gateway, "ada", session_id="adas").json()["id"])
    gateway.store.turns.answer(turn.id, [{"role": "user", "content": "shorter"}])
    found = [Judgement(kind="hint", score=1.0, votes=[], judge="test", hints=["Be brief."])]
    assert gateway.store.judgements.finish(turn.id, found, Drop("test"))


@pytest.mark.parametrize("path", [CONTENT, "/admin/sessions/adas/content", "/admin/memory/1"])
def test_a_test_of_a_preference_sends_nothing_after_the_deletion(
    gateway: RunningGateway, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_read, may_send = threading.Event(), threading.Event()

    async def until_idle(model: LiveModel) -> None:
        has_read.set()
        while not may_send.is_set():
            await asyncio.sleep(0.01)

    monkeypatch.setattr(LiveModel, "_wait_until_idle", until_idle)
    with_preference(gateway)
    assert has_read.wait(20)
    sent: list[int] = []
    gateway.engine.score = lambda ids, start: float(sent.append(start) or -1)
    assert gateway.http.delete(path).status_code == 200
    may_send.set()
    time.sleep(0.3)
    assert not sent


def test_a_deletion_waits_for_running_answers_of_this_person_only(gateway: RunningGateway) -> None:
    asked(gateway, "ada")
    gateway.engine.pause = 0.1
    _, of_ada = in_thread(lambda: asked(gateway, "ada"))
    gateway.wait_for(lambda: len(gateway.engine.requests) == 2)
    gateway.engine.pause = 0.5
    bob, of_bob = in_thread(lambda: asked(gateway, "bob"))
    gateway.wait_for(lambda: len(gateway.engine.requests) == 3)
    report = gateway.http.delete(CONTENT).json()
    assert (report["deleted"]["turns"], report["running"], report["status"]) == (1, 0, "done")
    assert not of_bob
    gateway.wait_for(lambda: of_ada, timeout_s=1)
    assert of_ada[0].status_code == 200
    bob.join(20)
    assert [one["person"] for one in gateway.store.people.listing()] == ["bob"]


def slow_answer(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> threading.Thread:
    """Starts an answer to ada that takes longer than a deletion waits, and returns its thread."""
    asked(gateway, "ada", session_id="adas")
    monkeypatch.setattr(running, "DELETION_WAIT_SECONDS", 0.1)
    gateway.engine.pause = 0.4
    thread, _ = in_thread(lambda: asked(gateway, "ada", session_id="adas"))
    gateway.wait_for(lambda: len(gateway.engine.requests) == 2)
    return thread


def test_a_deletion_reports_answers_that_still_run(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    thread = slow_answer(gateway, monkeypatch)
    assert main(["ada", "--url", gateway.url]) == 3
    assert "1 request(s) with deleted text are still being answered" in capsys.readouterr().out
    thread.join(20)
    assert gateway.store.people.listing() == []


def test_a_deletion_of_a_session_reports_answers_that_still_run(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = slow_answer(gateway, monkeypatch)
    report = gateway.http.delete("/admin/sessions/adas/content").json()
    assert (report["deleted"]["turns"], report["running"]) == (1, 1)
    thread.join(20)


def test_a_response_that_has_read_a_deleted_turn_is_over_before_the_deletion_returns(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"input": f"{WORD} of ada", "user": "ada", "max_output_tokens": 40}
    first = gateway.http.post("/v1/responses", json=body).json()["id"]
    turns = gateway.app.state.gateway.recorder.store.turns
    has_read, may_go_on, read = threading.Event(), threading.Event(), turns.get_by_completion

    def slowly(completion_id: str) -> Any:
        turn = read(completion_id)
        has_read.set()
        may_go_on.wait(20)
        return turn

    monkeypatch.setattr(turns, "get_by_completion", slowly)
    thread, _ = in_thread(
        lambda: gateway.http.post("/v1/responses", json={**body, "previous_response_id": first})
    )
    assert has_read.wait(20)
    deletion, reports = in_thread(lambda: gateway.http.delete(CONTENT).json())
    time.sleep(0.2)
    assert not reports
    may_go_on.set()
    deletion.join(20)
    before = len(prompts(gateway))
    thread.join(20)
    assert reports[0]["running"] == 0 and len(prompts(gateway)) == before == 2
    assert gateway.store.people.listing() == [], (
        "the answer is not stored, although its prompt was ready later"
    )


def test_a_stored_prompt_is_not_answered_again_after_its_deletion(gateway: RunningGateway) -> None:
    path = f"/admin/turns/{asked(gateway, 'ada').json()['id']}/again"
    gateway.engine.pause = 0.3
    running = [in_thread(lambda: gateway.http.post(path)) for _ in range(TRIES)]
    gateway.wait_for(lambda: len(gateway.engine.requests) == 1 + TRIES)
    waiting, answers = in_thread(lambda: gateway.http.post(path))
    time.sleep(0.1)
    assert gateway.http.delete(CONTENT).json()["running"] == 0
    for thread, _ in [*running, (waiting, answers)]:
        thread.join(20)
    assert answers[0].status_code == 404 and len(gateway.engine.requests) == 1 + TRIES


def test_a_later_use_is_not_waited_for() -> None:
    async def deletion() -> int:
        known = UsesInProgress()
        waiting = asyncio.create_task(known.end_of_person("ada"))
        first, other = known.begin(Use({"ada"})), known.begin(Use({"bob"}))
        await asyncio.sleep(0)
        later = known.begin(Use({"ada"}))
        first.end()
        assert not other.has_ended and not later.has_ended
        return await asyncio.wait_for(waiting, 5)

    assert asyncio.run(deletion()) == 0


def test_a_use_without_a_reference_has_ended() -> None:
    async def deletion() -> int:
        known = UsesInProgress()
        known.begin(Use({"ada"}))
        return await asyncio.wait_for(known.end_of_person("ada"), 5)

    assert asyncio.run(deletion()) == 0
