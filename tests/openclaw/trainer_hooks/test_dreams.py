"""Steps of dreams after a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw.dreaming.batch import DreamBatch
from openclaw.dreaming.settings import DreamArguments
from openclaw.errors import ConfigError
from openclaw.store import RolloutStore
from openclaw.store.dreams import Dream, DreamKind
from openclaw.trainer_hooks import dreams, replay
from openclaw.types import Judgement, NewTurn, SampleDraft, Turn, Vote
from slime.types import Sample
from tests.fakes.hook_flags import hook_flags, hook_settings, pipeline_on
from tests.fakes.scripted_engine import FakeEngine

SELECT = "openclaw_combine.topk_select:sample_from_judged_turn"


@pytest.fixture
def say(store: RolloutStore, make_turn: Callable[..., NewTurn]) -> Callable[..., Turn]:
    """Creates a turn with the hint that its judge found; without a hint it was liked."""

    def make(person: str, *hints: str) -> Turn:
        turn = store.turns.record(make_turn(person=person))
        assert store.turns.answer(turn.id, [{"role": "user", "content": "so"}])
        score = -1.0 if hints else 1.0
        found = [Judgement(kind="eval", score=score, votes=[Vote(score=int(score))], judge="test")]
        found += [Judgement(kind="hint", score=-score, votes=[], judge="test", hints=list(hints))]
        draft = SampleDraft(turn_id=turn.id, reward={"score": score}, metadata={"eval_score": score})
        assert store.judgements.finish(turn.id, found, draft)
        return turn

    return make


@pytest.fixture
def flags(model: Path, engine: FakeEngine) -> Callable[..., Any]:
    engine.say = [40, 41, 42]

    def make(**changes: object) -> Any:
        values: dict[str, Any] = {
            "hf_checkpoint": str(model),
            "rollout_external_engine_addrs": [engine.url],
            "dream_steps": 2,
            "dream_first_steps": 3,
            "dream_rows": 2,
            "dream_anchors": 3,
            "dream_anchor_weight": 0.5,
            "dream_prompts": 4,
            "dream_tokens": 16,
            "replay_steps": 2,
            "replay_samples": 1,
        }
        return hook_flags(**(values | changes))

    return make


def test_dream_steps_follow_replay_steps_and_are_reproducible(
    store: RolloutStore, say: Callable[..., Turn], flags: Callable[..., Any], engine: FakeEngine
) -> None:
    say("ann", "Shorter, please.")
    records = store.samples.lease(0, 2)
    pipeline = pipeline_on(store, flags())
    batch = pipeline.prepare(records, 0)
    asked = len(engine.requests)
    assert (
        pipeline_on(store, flags()).prepare(records, 0).rows == batch.rows and len(engine.requests) == asked
    )
    assert [row.get("companion", 0) for row in batch.rows] == [0, 1, 2, *[3] * 5, *[4] * 5, *[5] * 5]
    cases = [row["metadata"]["case"] for row in batch.dreams]
    assert cases == 3 * [dreams.DREAM, dreams.DREAM, *[dreams.ANCHOR] * 3]
    for row in batch.dreams:
        assert row["tokens"][-3:] == [40, 41, 42] and row["loss_mask"] == [1, 1, 1]
        assert row["reward"] == {"score": 0.0} and row["divergence"] == "forward"
        (taught,) = row["teacher_tokens_candidates"]
        is_dream = row["metadata"]["case"] == dreams.DREAM
        # --dream-anchor-weight 0.5, for three tokens.
        weight = 1.0 if is_dream else 0.5 * 3 / dreams.ANCHOR_TOKENS
        assert (taught != row["tokens"]) == is_dream and row["loss_weight"] == weight
        assert taught[-3:] == [40, 41, 42]
        sample = Sample.from_dict(row)
        assert (sample.divergence, sample.loss_weight) == ("forward", row["loss_weight"])
    assert len({row["index"] for row in batch.rows}) == len(batch.rows)
    metrics = pipeline.metrics(batch)
    assert metrics["rollout/dream_steps"] == 3 and metrics["rollout/dream_rows"] == 15
    assert metrics["rollout/samples_dream"] == 6 and metrics["rollout/dream_seconds"] > 0


def test_a_liked_batch_uses_dreams_of_its_persons_standing_wish_only(
    store: RolloutStore, say: Callable[..., Turn], flags: Callable[..., Any]
) -> None:
    store.versions.weights_live(-1, 0, None, True, None, None)
    say("ann", "Shorter, please."), say("bob", "Talk like a pirate.")
    pipeline = pipeline_on(store, flags())
    pipeline.prepare(store.samples.lease(0, 2), 0)
    store.versions.weights_live(0, 1, 0, False, None, None)
    say("ann")
    batch = pipeline.prepare(store.samples.lease(1, 2), 1)
    assert (
        batch.dream_batch is not None
        and list(batch.dream_batch.dreams) == ["ann"]
        and not batch.dream_batch.is_new
    )
    assert {row["companion"] for row in batch.dreams} == {3, 4}


def test_a_token_of_a_mismatch_weighs_four_times_as_much_as_one_of_another_anchor(
    store: RolloutStore, say: Callable[..., Turn]
) -> None:
    def dream(kind: DreamKind, theme: str = "") -> Dream:
        return Dream(
            kind=kind,
            item="p1",
            theme=theme,
            prompt_ids=[1],
            taught_ids=[1],
            completion_ids=[40, 41],
            version=0,
        )

    say("ann", "Shorter, please.")
    (record,) = store.samples.lease(0, 1)
    bank = {"length long": [dream("anchor", theme) for theme in ("length long", "length long mismatch")]}
    dream_batch = DreamBatch(dreams={"ann": [dream("dream")]}, bank=bank)
    rows = dreams.rows_of(DreamArguments(dream_steps=1, dream_anchors=8), dream_batch, record, 0, 0, [2])
    weights = {row["loss_weight"] for row in rows if row["metadata"]["case"] == dreams.ANCHOR}
    assert weights == {2 / dreams.ANCHOR_TOKENS, 2 / dreams.ANCHOR_TOKENS * dreams.MISMATCH}
    dream_batch.anchor_factor = 0.5
    rows = dreams.rows_of(DreamArguments(dream_steps=1, dream_anchors=8), dream_batch, record, 0, 0, [2])
    half = {row["loss_weight"] for row in rows if row["metadata"]["case"] == dreams.ANCHOR}
    assert half == {weight / 2 for weight in weights}


def test_dreams_teach_to_end_and_mismatches_not_to(store: RolloutStore, say: Callable[..., Turn]) -> None:
    say("ann", "Shorter, please.")
    (record,) = store.samples.lease(0, 1)

    def weights(*answer: int, asked: str = "length long") -> dict[str, float]:
        def dream(kind: DreamKind, theme: str) -> Dream:
            return Dream(
                kind=kind,
                item="p1",
                theme=theme,
                prompt_ids=[1],
                taught_ids=[1],
                completion_ids=[*answer],
                version=0,
            )

        bank = {asked: [dream("anchor", theme) for theme in (asked, f"{asked} mismatch")]}
        dream_batch = DreamBatch({"ann": [dream("dream", "")]}, bank=bank)
        arguments = DreamArguments(dream_steps=1, dream_anchors=8, dream_end_weight=2.0)
        rows = dreams.rows_of(arguments, dream_batch, record, 0, 0, [2])
        return {f"{row['metadata']['case']} {row['loss_weight'] > 1}": row["end_weight"] for row in rows}

    mismatch, anchor, own = f"{dreams.ANCHOR} True", f"{dreams.ANCHOR} False", f"{dreams.DREAM} False"
    ended = [*range(40, 49), 2]
    assert weights(*ended) == {own: 2.0, anchor: 0.0, mismatch: -2.0}
    assert set(weights(*ended[:-1]).values()) == {0.0}
    assert weights(*ended, asked="layout list") == {own: 2.0, anchor: 0.0, mismatch: 0.0}


def test_the_first_tokens_of_a_long_anchor_are_trained(store: RolloutStore, say: Callable[..., Turn]) -> None:
    say("ann", "Shorter, please.")
    (record,) = store.samples.lease(0, 1)
    answer = list(range(3, 3 + 2 * dreams.HELD_TOKENS))
    one = Dream(
        kind="anchor",
        item="p1",
        theme="length",
        prompt_ids=[1],
        taught_ids=[1],
        completion_ids=answer,
        version=0,
    )
    dream_batch = DreamBatch(dreams={"ann": [one]}, bank={"length": [one]})
    dream, held = dreams.rows_of(
        DreamArguments(dream_steps=1, dream_rows=1, dream_anchors=1), dream_batch, record, 0, 0, [2]
    )
    assert dream["tokens"] == [1, *answer]
    assert held["tokens"] == [1, *answer[: dreams.HELD_TOKENS]] == held["teacher_tokens_candidates"][0]
    assert held["loss_weight"] == dreams.HELD_TOKENS / dreams.ANCHOR_TOKENS


@pytest.mark.parametrize(
    ("dream_batch", "steps"),
    [
        (DreamBatch(is_new=True), 9),
        (DreamBatch(is_new=True, is_asked=True, learned=0.0), 9),
        (DreamBatch(is_new=True, is_asked=True, learned=0.9), 5),
        (DreamBatch(), 5),
        (DreamBatch(learned=0.0), 9),
        (DreamBatch(learned=0.5), 9),
        (DreamBatch(learned=0.6), 7),
        (DreamBatch(learned=0.8), 4),
        (DreamBatch(learned=0.9), 2),
        (DreamBatch(learned=0.9, is_asked=True), 5),
        (DreamBatch(learned=0.25, is_asked=True), 9),
        (DreamBatch(learned=0.8, is_asked=True), 5),
        (DreamBatch(learned=1.0, kept=1.0), 2),
        (DreamBatch(learned=1.0, kept=0.875), 4),
        (DreamBatch(learned=1.0, kept=0.5), 9),
        (DreamBatch(learned=0.8, kept=1.0), 4),
        (DreamBatch(kept=0.5), 5),
        (DreamBatch(follows=True, is_asked=True), 2),
        (DreamBatch(follows=True, is_new=True), 9),
    ],
)
def test_fewer_steps_follow_once_half_of_the_answers_show_the_wish(
    dream_batch: DreamBatch, steps: int
) -> None:
    arguments = DreamArguments(dream_steps=5, dream_first_steps=9)
    assert dreams.count_steps(arguments, dream_batch) == 0
    dream_batch.dreams = {"ann": []}
    assert dreams.count_steps(arguments, dream_batch) == steps


def test_without_a_wish_there_are_no_dreams(
    store: RolloutStore, say: Callable[..., Turn], flags: Callable[..., Any], engine: FakeEngine
) -> None:
    say("ann")
    pipeline = pipeline_on(store, flags())
    batch = pipeline.prepare(store.samples.lease(0, 2), 0)
    assert batch.dreams == [] and not engine.requests
    assert pipeline.metrics(batch)["rollout/dream_steps"] == 0


def test_a_deleted_person_has_no_dreams(
    store: RolloutStore, say: Callable[..., Turn], flags: Callable[..., Any]
) -> None:
    say("ann", "Shorter, please."), say("bob", "Talk like a pirate.")
    records = store.samples.lease(0, 2)
    pipeline = pipeline_on(store, flags())
    pipeline.prepare(records, 0)
    store.deletion.delete_person("ann")
    left = store.samples.lease(0, 2)
    batch = pipeline.prepare(left, 0)
    assert batch.dream_batch is not None and list(batch.dream_batch.dreams) == ["bob"]


def test_dreams_without_a_teacher_are_rejected() -> None:
    for changes in ({"teacher_source": "inference"}, {"method_path": None}):
        values: dict[str, Any] = {"dream_steps": 2, "method_path": SELECT, **changes}
        with pytest.raises(ConfigError, match="--dream-steps"):
            dreams.check(hook_settings(**values))
    dreams.check(hook_settings(dream_steps=2, method_path=SELECT))
    dreams.check(hook_settings())
    with pytest.raises(ConfigError, match="--dream-steps cannot be combined with --use-tis"):
        replay.check(hook_settings(dream_steps=2, use_tis=True))
