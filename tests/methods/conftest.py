"""Turns of tiny-claw in the gateway's form, and their judgements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.methods.method import MethodContext
from openclaw.store import RolloutStore
from openclaw.types import NewTurn, Turn
from tests.fakes import tiny_turns
from tests.fakes.unsynced import unsynced_stores

__all__ = ["unsynced_stores"]
chat_format, make_turn, prompts = tiny_turns.chat_format, tiny_turns.make_turn, tiny_turns.prompts


@pytest.fixture
def context(prompts: HintedPrompts) -> MethodContext:
    return MethodContext(prompts)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RolloutStore]:
    store = RolloutStore(tmp_path / "buffer")
    yield store
    store.close()


@pytest.fixture
def answered(store: RolloutStore, make_turn: Callable[..., Turn]) -> Callable[..., Turn]:
    """f(next_message, **changes): a stored turn with this next message, claimed by a judge."""

    def make(said: str, **changes: object) -> Turn:
        turn = make_turn(**changes)
        names = NewTurn.__dataclass_fields__
        store.turns.record(NewTurn(**{name: getattr(turn, name) for name in names}))
        assert store.turns.answer(turn.id, [{"role": "user", "content": said}])
        (claimed,) = store.judgements.claim("w", 1, 60.0)
        return claimed

    return make
