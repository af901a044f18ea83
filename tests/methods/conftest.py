"""Turns of tiny-claw as the gateway stores them, and what a judge says of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw.formats.rendering import ChatFormat
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.methods.method import MethodContext
from openclaw.store import RolloutStore
from openclaw.types import NewTurn, Turn

MODEL = Path(__file__).parents[2] / "openclaw-test/tiny_claw/model"
Message = dict[str, Any]


@pytest.fixture(scope="session")
def prompts() -> HintedPrompts:
    return HintedPrompts.of(MODEL)


@pytest.fixture(scope="session")
def chat_format(prompts: HintedPrompts) -> ChatFormat:
    return prompts._format


@pytest.fixture
def make_turn(chat_format: ChatFormat) -> Callable[..., Turn]:
    """f(messages=..., answer=..., **changes): a turn whose prompt is rendered as the gateway renders it."""
    numbers = itertools.count()

    def make(
        messages: list[Message] | None = None, answer: str = "12 + 5 = 17.<|im_end|>", **changes: Any
    ) -> Turn:
        messages = messages or [{"role": "user", "content": "What is 12 + 5?"}]
        number = next(numbers)
        completion = chat_format.tokenizer.encode_markup(answer)
        fields: dict[str, Any] = {
            "id": f"turn-{number}",
            "completion_id": f"chatcmpl-{number}",
            "session_id": "s",
            "messages": messages,
            "response_message": {"role": "assistant", "content": answer},
            "prompt_ids": chat_format.render(messages, changes.get("tools"), True),
            "completion_ids": completion,
            "completion_log_probs": [-0.5] * len(completion),
            "version_spans": [(0, 0, len(completion))],
            "sampling": {"temperature": 1.0, "enable_thinking": True},
            "finish_reason": "stop",
            "transcript_digest": f"d{number}",
        }
        return Turn(**{**fields, **changes}, turn_index=number)

    return make


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
    """f(next_message, **changes): a stored turn that this message followed, claimed by a judge."""

    def make(said: str, **changes: Any) -> Turn:
        turn = make_turn(**changes)
        names = NewTurn.__dataclass_fields__
        store.record_turn(NewTurn(**{name: getattr(turn, name) for name in names}))
        assert store.answer_turn(turn.id, [{"role": "user", "content": said}])
        (claimed,) = store.claim_answered("w", 1, 60.0)
        return claimed

    return make
