"""Fixtures: turns of tiny-claw in the gateway's form."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from openclaw.formats.rendering import ChatFormat
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.types import Turn
from tests import MODEL

Message = dict[str, Any]


@pytest.fixture(scope="session")
def prompts() -> HintedPrompts:
    return HintedPrompts.of(MODEL)


@pytest.fixture(scope="session")
def chat_format(prompts: HintedPrompts) -> ChatFormat:
    return prompts._format


@pytest.fixture
def make_turn(chat_format: ChatFormat) -> Callable[..., Turn]:
    """f(messages=..., answer=..., **changes): a turn whose prompt is rendered like in the gateway."""
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
