"""Anchors: a turn's own answer after a prompt with an explicit request, as a companion without a score."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw.errors import ConfigError
from openclaw.methods.anchors import WISHES, Anchors, read_wishes, wished
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.trainer_hooks import anchors as anchor_rows
from openclaw.trainer_hooks import replay
from openclaw.trainer_hooks.rows import batch_metrics
from openclaw.types import Turn
from openclaw_test.people import tastes
from openclaw_test.people.wishes import wordings
from slime.types import Sample
from tests.fakes.hook_flags import hook_settings
from tiny_claw import wordings as trained

MakeTurn = Callable[..., Turn]
WISH = "Put it in a table."


def placed(turn: Turn) -> list[list[dict[str, Any]]]:
    """Returns every conversation that some seed produces."""
    return [wished(random.Random(seed), turn, WISH) for seed in range(40)]


def test_a_preference_is_in_the_question_the_system_message_or_a_comment_on_the_answer(
    make_turn: MakeTurn,
) -> None:
    turn = make_turn(response_message={"role": "assistant", "content": "It is 4."})
    question = turn.messages[-1]["content"]
    found = placed(turn)
    assert all(talk[-1]["role"] == "user" and WISH in str(talk) for talk in found)
    ends = {
        (talk[0]["role"], talk[-2]["role"] if len(talk) > 1 else None, talk[-1]["content"]) for talk in found
    }
    assert {end[2] for end in ends} == {f"{question} {WISH}", f"{question}\n\n{WISH}", question, WISH}
    assert any(talk[-2] == {"role": "assistant", "content": "It is 4."} for talk in found if len(talk) > 1)
    assert WISH not in str(turn.messages)


def test_an_answer_that_calls_a_tool_gets_no_comment(make_turn: MakeTurn) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    turn = make_turn(response_message={"role": "assistant", "content": "", "tool_calls": [call]})
    assert not any("tool_calls" in message for talk in placed(turn) for message in talk)


def test_an_anchor_ends_with_the_turns_ids_and_is_reproducible(
    prompts: HintedPrompts, make_turn: MakeTurn
) -> None:
    turn = make_turn()
    anchors = Anchors(prompts, (WISH,), share=1.5)
    found = anchors.of(turn, "7")
    assert found == anchors.of(turn, "7")
    assert {len(anchors.of(turn, str(seed))) for seed in range(20)} == {1, 2}
    for tokens in found:
        assert tokens[-len(turn.completion_ids) :] == turn.completion_ids
        assert WISH in prompts.tokenizer.decode(tokens)


def test_an_anchor_that_exceeds_the_context_is_omitted(prompts: HintedPrompts, make_turn: MakeTurn) -> None:
    small = HintedPrompts(prompts._format, context_length=4)
    assert Anchors(small, WISHES, share=1.0).of(make_turn(), "0") == []


def test_an_anchor_is_a_companion_without_reward_or_engine_log_probs() -> None:
    row = {
        "index": 3, "group_index": 3, "rollout_id": 0, "session_id": "s", "prompt": [], "tokens": [1, 2, 3],
        "response": "x", "response_length": 2, "rollout_log_probs": [-1.0, -1.0], "loss_mask": [1, 1],
        "reward": {"score": -1.0}, "version_spans": [(0, 0, 2)], "temperature": 1.0, "status": "completed",
        "metadata": {"turn_id": "t", "case": "rl", "eval_score": -1.0},
    }  # fmt: skip
    anchor = anchor_rows.anchor_row(row, [9, 8, 2, 3], 0, 2)
    sample = Sample.from_dict(anchor)
    assert sample.companion == 2
    assert sample.reward == {"score": 0.0}
    assert sample.rollout_log_probs is None
    assert sample.teacher_tokens_candidates == [[9, 8, 2, 3]]
    metrics = batch_metrics([row, anchor])
    assert metrics["rollout/prm_eval_score"] == -1.0
    assert metrics["rollout/samples_anchor"] == 1.0
    assert "rollout/hints" not in metrics


def test_training_and_evaluation_use_different_requests() -> None:
    def words(text: str) -> str:
        return "".join(letter for letter in text.lower() if letter.isalpha() or letter == " ").strip()

    measured = {
        words(text)
        for kinds in wordings().values()
        for places in kinds.values()
        for texts in places.values()
        for text in texts
    }
    tables = [
        *trained.MANNER_HINTS.values(),
        *trained.MANNER_COMPLAINTS.values(),
        *trained.TRAIT_HINTS.values(),
    ]
    said = {words(text) for table in tables for split in table.values() for text in split}
    said |= {words(text) for texts in tastes.COMPLAINTS.values() for text in texts}
    assert not {words(text) for text in WISHES} & (measured | said)


def test_custom_preferences_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "wishes.txt"
    file.write_text("Kurz, bitte.\n\n  Als Tabelle.  \n", "utf-8")
    assert read_wishes(str(file)) == ("Kurz, bitte.", "Als Tabelle.")
    file.write_text("\n")
    with pytest.raises(ConfigError, match="contains no wish"):
        read_wishes(str(file))
    with pytest.raises(ConfigError, match="anchor-wishes"):
        read_wishes(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"teacher_source": "inference"}, "--teacher-source inference"),
        ({"use_tis": True}, "--use-tis"),
        ({"use_rollout_logprobs": True}, "--use-rollout-logprobs"),
    ],
)
def test_anchors_without_a_teacher_are_rejected_before_the_start(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        replay.check(hook_settings(anchor_share=0.5, **changes))
    replay.check(hook_settings(anchor_share=0.0, **changes))
