"""A store in a fresh folder, and turns to put into it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw.records import Drop, Judgement, NewTurn, SampleDraft, Turn, Vote
from openclaw.store import RolloutStore

THANKS = [{"role": "user", "content": "Thanks!"}]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RolloutStore]:
    store = RolloutStore(tmp_path)
    yield store
    store.close()


@pytest.fixture
def make_turn() -> Callable[..., NewTurn]:
    numbers = itertools.count()

    def make(**changes: Any) -> NewTurn:
        number = next(numbers)
        values: dict[str, Any] = {
            "completion_id": f"chatcmpl-{number}",
            "session_id": "s",
            "messages": [{"role": "user", "content": f"question {number}"}],
            "response_message": {"role": "assistant", "content": "4"},
            "prompt_ids": [5, 6, 7],
            "completion_ids": [8, 9],
            "completion_log_probs": [-0.25, -1 / 3],
            "version_spans": [(0, 0, 1), (1, 1, 2)],
            "sampling": {"temperature": 0.6},
            "finish_reason": "stop",
            "transcript_digest": f"digest-{number}",
        }
        return NewTurn(**(values | changes))

    return make


@pytest.fixture
def make_sample(store: RolloutStore, make_turn: Callable[..., NewTurn]) -> Callable[..., Turn]:
    """Takes a turn through capture, answer and judgement: its sample is ready (or dropped)."""

    def make(reward: float = 1.0, drop: str | None = None, **changes: Any) -> Turn:
        turn = store.record_turn(make_turn(**changes))
        assert store.answer_turn(turn.id, THANKS)
        judgement = Judgement(kind="eval", score=reward, votes=[Vote(score=int(reward))], judge="test")
        outcome = Drop(drop) if drop else SampleDraft(turn_id=turn.id, reward={"score": reward})
        assert store.finish_judgement(turn.id, [judgement], outcome)
        return turn

    return make
