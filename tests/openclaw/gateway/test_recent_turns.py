"""The turn that a request follows comes from memory while its conversation is recent, and its state from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw.gateway.recorder import RecentTurns, Recorder
from openclaw.sessions.transcript import Transcript
from openclaw.store import RolloutStore, turns
from openclaw.store.rights import ADMINISTRATOR
from openclaw.types import NewTurn, Turn, TurnState

ANSWER = {"role": "assistant", "content": "so"}
ASKED: list[Any] = [{"role": "user", "content": "how?"}]
NEXT = [*ASKED, ANSWER, {"role": "user", "content": "and?"}]


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(RolloutStore(tmp_path), session_ttl=3600.0)
    yield made
    made.close()


@pytest.fixture
def turn(make_turn: Callable[..., NewTurn]) -> NewTurn:
    digest = Transcript.of(ASKED).with_answer(ANSWER)
    return make_turn(session_id="s", messages=ASKED, response_message=ANSWER, transcript_digest=digest)


async def parent(recorder: Recorder) -> Turn | None:
    found = await recorder.find_parent(NEXT, Transcript.of(NEXT), "s", ADMINISTRATOR)
    return None if found is None else found.turn


async def test_a_recent_turn_is_not_read_from_the_store(
    recorder: Recorder, turn: NewTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorder.record(turn, 1.0)
    stored = await parent(Recorder(recorder.store, 3600.0))
    monkeypatch.setattr(turns, "_turn", lambda *_: pytest.fail("the turn was read"))
    assert await parent(recorder) == stored


async def test_its_state_is_that_of_the_store(recorder: Recorder, turn: NewTurn) -> None:
    await recorder.record(turn, 1.0)
    first = await parent(recorder)
    assert first is not None and first.state is TurnState.CAPTURED
    recorder.answer_soon(first, NEXT[2:])
    for _ in range(100):
        later = await parent(recorder)
        if later is not None and later.state is TurnState.ANSWERED:
            return
        await asyncio.sleep(0.02)
    pytest.fail("the turn stayed captured")


async def test_a_turn_that_another_process_deleted_is_not_found(recorder: Recorder, turn: NewTurn) -> None:
    await recorder.record(turn, 1.0)
    recorder.store.deletion.delete_session("s")
    assert await parent(recorder) is None


async def test_deleting_a_person_clears_the_memory(recorder: Recorder, turn: NewTurn) -> None:
    await recorder.record(turn, 1.0)
    assert recorder.recent.by_id
    await recorder.delete_person("someone")
    assert not recorder.recent.by_id


def test_a_conversation_keeps_its_last_turn_and_all_share_a_limit(turn: NewTurn) -> None:
    recent = RecentTurns(most=10)
    first = Turn(**vars(replace(turn, id="1", prompt_ids=[1] * 4, turn_index=0)))
    recent.keep(first)
    recent.keep(replace(first, id="2", parent_id="1", prompt_ids=[1] * 5))
    assert list(recent.by_id) == ["2"]
    recent.keep(replace(first, id="3", prompt_ids=[1] * 5))
    assert list(recent.by_id) == ["2", "3"]
    recent.keep(replace(first, id="4", prompt_ids=[1] * 6))
    assert list(recent.by_id) == ["4"]
