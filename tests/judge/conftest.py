"""A store with answered turns, as a gateway leaves them for the judge."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openclaw.records import NewTurn, Turn
from openclaw.store import RolloutStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RolloutStore]:
    store = RolloutStore(tmp_path)
    yield store
    store.close()


@pytest.fixture
def answer(store: RolloutStore) -> Callable[[str], Turn]:
    numbers = itertools.count()

    def make(next_message: str) -> Turn:
        turn = store.record_turn(
            NewTurn(
                completion_id=f"chatcmpl-{next(numbers)}",
                session_id="s",
                messages=[{"role": "user", "content": "Solve my homework."}],
                response_message={"role": "assistant", "content": "**7**"},
                prompt_ids=[1, 2],
                completion_ids=[3, 4],
                completion_log_probs=[-0.5, -0.25],
                version_spans=[(0, 0, 2)],
                sampling={"temperature": 0.6},
                finish_reason="stop",
                transcript_digest="d",
            )
        )
        assert store.answer_turn(turn.id, [{"role": "user", "content": next_message}])
        return turn

    return make
