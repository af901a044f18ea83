"""Samples trained after a batch: earlier turns again, in separate steps."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from openclaw.errors import ConfigError
from openclaw.store import RolloutStore
from openclaw.trainer_hooks import anchors, pipeline, replay
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.types import Judgement, NewTurn, SampleDraft, SampleRecord, Turn, Vote
from tests.fakes.hook_flags import hook_flags, rows_of

MakeHinted = Callable[..., Turn]
COMPARED = "openclaw.methods.rewards.compare_in_batch"


@pytest.fixture
def hinted(store: RolloutStore, make_turn: Callable[..., NewTurn]) -> MakeHinted:
    """Creates a turn that was judged bad, with or without a hint for a teacher in the trainer."""

    def make(hint: bool = True, score: float = -1.0) -> Turn:
        turn = store.turns.record(make_turn())
        assert store.turns.answer(turn.id, {"role": "user", "content": "No, shorter."})
        judgement = Judgement(kind="eval", score=score, votes=[Vote(score=int(score))], judge="test")
        candidates = [[4, *turn.prompt_ids, *turn.completion_ids]] if hint else None
        draft = SampleDraft(turn_id=turn.id, reward={"score": score}, teacher_tokens_candidates=candidates)
        assert store.judgements.finish(turn.id, [judgement], draft)
        return turn

    return make


def flags(**changes: Any) -> SimpleNamespace:
    values = {
        "replay_steps": 2,
        "replay_samples": 3,
        "replay_window": 4,
        "anchor_share": 0.0,
        "anchor_wishes": None,
        "reward_key": "score",
        "custom_reward_post_process_path": COMPARED,
    }
    return hook_flags(**(values | changes))


def trained(store: RolloutStore, rollout_id: int, size: int = 2) -> list[SampleRecord]:
    records = store.samples.lease(rollout_id, size)
    store.versions.weights_live(rollout_id, rollout_id + 1, rollout_id, False, None, None)
    return records


@pytest.mark.every_database
def test_earlier_rollouts_samples_are_replayed_before_and_after_their_weights_are_live(
    store: RolloutStore, hinted: MakeHinted
) -> None:
    store.versions.weights_live(-1, 0, None, True, None, None)
    for hint in (True, False, True, True, True):
        hinted(hint)
    first = trained(store, 0, 3)
    second = store.samples.lease(1, 2)
    taught = [record.id for record in [*first, *second]]
    assert [record.id for record in store.samples.learned_before(2, 10)] == taught
    assert [record.id for record in store.samples.learned_before(2, 2)] == taught[-2:]
    assert [record.id for record in store.samples.learned_before(1, 10)] == taught[:3]
    assert store.samples.learned_before(0, 10) == []
    store.versions.weights_live(1, 2, 1, False, None, None)
    assert [record.id for record in store.samples.learned_before(2, 10)] == taught


def test_samples_of_a_rolled_back_version_are_not_replayed(store: RolloutStore, hinted: MakeHinted) -> None:
    store.versions.weights_live(-1, 0, None, True, None, None)
    hinted(), hinted()
    trained(store, 0, 1)
    undone = trained(store, 1, 1)
    store.versions.roll_back(1, True, "wrong")
    assert undone[0].id not in [record.id for record in store.samples.learned_before(5, 10)]
    assert len(store.samples.learned_before(5, 10)) == 1


def test_the_replay_step_after_a_batch_draws_old_and_new_turns(
    store: RolloutStore, hinted: MakeHinted
) -> None:
    store.versions.weights_live(-1, 0, None, True, None, None)
    for hint in (True, True, False, True, False):
        hinted(hint)
    trained(store, 0, 3)
    records = store.samples.lease(1, 2)
    rows = rows_of(flags(), store, records, 1)
    assert rows == rows_of(flags(), store, records, 1)
    own, beside = rows[:2], rows[2:]
    assert [row["index"] for row in own] == [record.id for record in records]
    assert not any(row.get("companion") for row in own)
    assert [row["companion"] for row in beside] == [1, 1, 1, 2, 2, 2]
    assert all(row["reward"] == {"score": -1.0} for row in beside)
    assert any(row["teacher_tokens_candidates"] for row in beside)
    wrote = {
        record.turn.id: record.turn.completion_log_probs
        for record in [*records, *store.samples.learned_before(1, 9)]
    }
    assert all(row["rollout_log_probs"] == wrote[row["metadata"]["turn_id"]] for row in beside)
    assert all(row["version_spans"] == [] for row in beside)
    assert all(row["metadata"]["case"] == replay.REPLAY for row in beside)
    assert len({row["index"] for row in rows}) == len({row["group_index"] for row in rows}) == len(rows)
    window = {record.turn.id for record in [*records, *store.samples.learned_before(1, 2)]}
    assert {row["metadata"]["turn_id"] for row in beside} == window


@pytest.mark.parametrize(
    ("last", "changes", "held"),
    [
        ((False, 1.0), {}, False),
        ((False, -1.0), {}, True),
        ((True, 1.0), {}, True),
        ((False, 1.0), {"custom_reward_post_process_path": None}, True),
    ],
    ids=["all content", "scores differ", "a hint", "rewards that are not compared"],
)
def test_a_step_that_changes_no_habit_has_no_anchors(
    store: RolloutStore,
    hinted: MakeHinted,
    monkeypatch: pytest.MonkeyPatch,
    last: tuple[bool, float],
    changes: dict[str, Any],
    held: bool,
) -> None:
    class OneAnchor:
        def __init__(self, *_: object) -> None: ...

        def of(self, turn: Turn, seed: str) -> list[list[int]]:
            return [[5, *turn.prompt_ids, *turn.completion_ids]]

    monkeypatch.setattr(anchors, "Anchors", OneAnchor)
    monkeypatch.setattr(pipeline, "prompts_of", lambda path: None)
    store.versions.weights_live(-1, 0, None, True, None, None)
    hinted(False, 1.0), hinted(False, 1.0), hinted(*last)
    rows = rows_of(flags(anchor_share=1.0, **changes), store, store.samples.lease(0, 3), 0)
    cases = [row["metadata"]["case"] for row in rows if row.get("companion")]
    assert cases.count(replay.REPLAY) == 6
    assert cases.count(anchors.ANCHOR) == (6 if held else 0)


def test_only_the_newest_turns_in_the_window_are_replayed(store: RolloutStore, hinted: MakeHinted) -> None:
    store.versions.weights_live(-1, 0, None, True, None, None)
    for _ in range(8):
        hinted()
    trained(store, 0, 6)
    records = store.samples.lease(1, 2)
    newest = {record.turn.id for record in [*store.samples.learned_before(1, 2), *records]}
    rows = rows_of(flags(replay_steps=8), store, records, 1)
    assert {row["metadata"]["turn_id"] for row in rows[2:]} == newest


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"use_tis": True}, "--use-tis"),
        ({"train_epochs": 2}, "--train-epochs"),
        ({"use_rollout_logprobs": True}, "--use-rollout-logprobs"),
    ],
)
def test_a_replay_whose_ratios_would_be_wrong_is_rejected(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=f"--replay-steps cannot be combined with .*{named}"):
        replay.check(HookSettings.of(flags(**changes)))
    replay.check(HookSettings.of(flags()))
    replay.check(HookSettings.of(flags(replay_steps=0, **changes)))


class Plain:
    """Prompts that add one id before a turn's sampled ids."""

    def answered(self, turn: Turn, messages: list[Any]) -> list[int]:
        assert messages == turn.messages
        return [99, *turn.completion_ids]


@pytest.mark.parametrize("steps", [0, 1])
def test_an_answer_with_preferences_is_trained_as_sampled_and_distilled_into_the_plain_prompt(
    store: RolloutStore, make_turn: Callable[..., NewTurn], monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(pipeline, "prompts_of", lambda path: Plain())
    for memory in (["shorter"], [], None):
        turn = store.turns.record(make_turn(memory=memory))
        store.turns.answer(turn.id, [{"role": "user", "content": "Thanks!"}])
        draft = SampleDraft(turn_id=turn.id, reward={"score": 1.0})
        found = [Judgement(kind="eval", score=1.0, votes=[], judge="test")]
        assert store.judgements.finish(turn.id, found, draft)
    method = "openclaw_combine.topk_select:sample_from_judged_turn"
    args = flags(memory=True, method_path=method, replay_steps=steps)
    records = store.samples.lease(0, 3)
    turn = records[0].turn
    rows = rows_of(args, store, records, 0)
    assert rows[0]["tokens"] == turn.prompt_ids + turn.completion_ids
    assert rows[0]["rollout_log_probs"] == turn.completion_log_probs
    (distilled,) = [row for row in rows if row["metadata"].get("case") == anchors.MEMORY]
    assert distilled["tokens"] == [99, *turn.completion_ids]
    assert distilled["teacher_tokens_candidates"] == [turn.prompt_ids + turn.completion_ids]
    assert (distilled["reward"], distilled["companion"]) == ({"score": 0.0}, 1)
    assert "rollout_log_probs" not in distilled and len({row["index"] for row in rows}) == len(rows)
    for change in ({"memory": False}, {"method_path": "openclaw_rl.binary_rl:sample_from_judged_turn"}):
        args = flags(**({"memory": True, "method_path": method, "replay_steps": steps} | change))
        cases = [row["metadata"].get("case") for row in rows_of(args, store, records, 0)]
        assert anchors.MEMORY not in cases
    with pytest.raises(ConfigError, match="--memory"):
        replay.check(HookSettings.of(flags(memory=True, method_path=method, replay_steps=0, use_tis=True)))
