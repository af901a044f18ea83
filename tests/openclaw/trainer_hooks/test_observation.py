"""The message after an answer, as ids and targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from openclaw.formats.rendering import ChatFormat
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.trainer_hooks.observation import next_state_fields
from openclaw.trainer_hooks.pipeline import Batch, BatchPipeline
from openclaw.types import Turn
from tests import MODEL
from tests.fakes import tiny_turns
from tests.fakes.hook_flags import hook_settings

chat_format, make_turn, prompts = tiny_turns.chat_format, tiny_turns.make_turn, tiny_turns.prompts
SAID = [{"role": "user", "content": "Please, no lists! Plain sentences."}]


def text_of_targets(chat_format: ChatFormat, turn: Turn, fields: dict[str, list[int]]) -> str:
    seen = fields["observed"][len(turn.completion_ids) :]
    return chat_format.tokenizer.decode(
        [token for token, one in zip(fields["next_tokens"], seen, strict=True) if one]
    )


@pytest.fixture
def turn(make_turn: Callable[..., Turn]) -> Turn:
    said = {"role": "assistant", "content": "12 + 5 = 17."}
    return replace(make_turn(response_message=said), next_state=SAID)


def test_observation_ids_are_those_of_the_next_prompt_and_only_the_text_is_a_target(
    turn: Turn, prompts: HintedPrompts, chat_format: ChatFormat
) -> None:
    fields = next_state_fields(prompts, turn, ["user"], 512)
    whole = [*turn.messages, {"role": "assistant", **turn.response_message}, *SAID]
    ids = turn.prompt_ids + turn.completion_ids + fields["next_tokens"]
    assert chat_format.render(whole, None, True)[: len(ids)] == ids
    assert fields["observed"][: len(turn.completion_ids)] == [0] * len(turn.completion_ids)
    assert text_of_targets(chat_format, turn, fields) == SAID[0]["content"]


def test_messages_of_other_roles_are_context_but_not_targets(
    turn: Turn, prompts: HintedPrompts, chat_format: ChatFormat
) -> None:
    both = replace(turn, next_state=[SAID[0], {"role": "user", "content": "And be brief."}])
    assert text_of_targets(chat_format, both, next_state_fields(prompts, both, ["user"], 512)).endswith(
        "And be brief."
    )
    assert next_state_fields(prompts, turn, ["tool"], 512) == {}


def test_the_observed_tokens_are_limited(turn: Turn, prompts: HintedPrompts) -> None:
    fields = next_state_fields(prompts, turn, ["user"], 7)
    assert len(fields["next_tokens"]) == 7 and len(fields["observed"]) == len(turn.completion_ids) + 7


def test_without_a_next_message_or_with_a_rewritten_history_nothing_is_observed(
    turn: Turn, prompts: HintedPrompts
) -> None:
    assert next_state_fields(prompts, replace(turn, next_state=None), ["user"], 512) == {}
    rewritten = replace(turn, completion_ids=[9, *turn.completion_ids])
    assert next_state_fields(prompts, rewritten, ["user"], 512) == {}


def test_whole_turns_get_an_observation_loss_and_anchors_do_not(turn: Turn) -> None:
    def observe(echo_coef: float) -> None:
        flags = {"hf_checkpoint": str(MODEL), "echo_roles": ["user"], "echo_longest": 64}
        no_store: Any = None
        pipeline = BatchPipeline(no_store, hook_settings(echo_coef=echo_coef, **flags))
        pipeline.observe(Batch(0, [record], own=rows))

    own = turn.prompt_ids + turn.completion_ids
    rows = [{"tokens": tokens, "metadata": {"turn_id": turn.id}} for tokens in (own, [1, *own])]
    record: Any = SimpleNamespace(turn=turn)
    observe(0.0)
    assert "next_tokens" not in rows[0]
    observe(0.1)
    assert rows[0]["next_tokens"] and "next_tokens" not in rows[1]
