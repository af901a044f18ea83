"""Trust by agreement with facts: feedback that contradicts facts counts less, and below the threshold not at all."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from openclaw.errors import ConfigError
from openclaw.methods.rewards import compare_in_batch
from openclaw.store import RolloutStore, schema
from openclaw.store.rows import pack_json
from openclaw.trainer_hooks import gate_samples, pipeline, replay, trust
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.trainer_hooks.credit import compare_with_person
from openclaw.trainer_hooks.rows import batch_metrics
from openclaw.trainer_hooks.trust import PRIOR, WINDOW, Exclusion, Trust, share_of
from openclaw.types import Judgement, NewTurn, SampleDraft, SampleRecord, Turn, Vote
from slime.types import Sample
from tests.fakes.hook_flags import hook_flags, pipeline_on, rows_of

RIGHT, WRONG = "So 12 - 5 = 7.", "So 12 - 5 = 8."
THANKS, NO, FORM = "Thanks!", "That is wrong.", "No bullet points, please."
COMPARED = "openclaw.methods.rewards.compare_in_batch"
SELECT = "openclaw_combine.topk_select:sample_from_judged_turn"
Say = Callable[..., Turn]


@pytest.fixture
def say(store: RolloutStore, make_turn: Callable[..., NewTurn]) -> Say:
    """Creates an answer and the person's feedback; the score follows the words."""

    def make(person: str | None, answer: str, words: str, hint: str = "", **known: object) -> Turn:
        content = {"role": "assistant", "content": answer}
        turn = store.turns.record(make_turn(person=person, response_message=content, **known))
        assert store.turns.answer(turn.id, [{"role": "user", "content": words}])
        score = 1.0 if words == THANKS else -1.0
        found = [Judgement(kind="eval", score=score, votes=[Vote(score=int(score))], judge="test")]
        if hint:
            found.append(Judgement(kind="hint", score=1.0, votes=[], judge="test", hints=[hint]))
        own = [[7, *turn.prompt_ids, *turn.completion_ids]] if hint else None
        draft = SampleDraft(turn_id=turn.id, reward={"score": score}, teacher_tokens_candidates=own)
        assert store.judgements.finish(turn.id, found, draft)
        return turn

    return make


@pytest.fixture
def args(location: str) -> Iterator[SimpleNamespace]:
    yield hook_flags(
        location,
        trust="facts",
        trust_bar=None,
        facts_path="claw_lab.facts:sums_hold",
        custom_reward_post_process_path=COMPARED,
        rollout_batch_size=4,
        batch_timeout=60.0,
        session_ttl=600.0,
        retention_days=0.0,
        max_person_share=1.0,
        standing_wishes="none",
        replay_steps=0,
        method_path=SELECT,
    )
    pipeline._made.clear()


def exclusion_of(args: SimpleNamespace, store: RolloutStore) -> Exclusion:
    found = pipeline_on(store, args).exclusion
    assert found is not None
    return found


def trust_now(args: SimpleNamespace, store: RolloutStore) -> Trust:
    return exclusion_of(args, store).trust_now()


def held_back(args: SimpleNamespace, store: RolloutStore) -> frozenset[str | None]:
    return exclusion_of(args, store).excluded_people()


def lease_full(args: SimpleNamespace, store: RolloutStore, rollout_id: int) -> list[SampleRecord]:
    return pipeline_on(store, args).next.take_full(rollout_id)


def lie(say: Say, times: int, person: str = "liar") -> None:
    for number in range(times):
        say(person, RIGHT, NO) if number % 2 else say(person, WRONG, THANKS)


def test_trust_is_the_share_of_agreements_and_one_slip_costs_little() -> None:
    assert share_of([]) == share_of([True] * 9) == 1.0
    assert share_of([False]) == PRIOR / (PRIOR + 1) > 0.75
    assert share_of([False] * 4) == 0.5 and share_of([False] * 5) < 0.5
    assert share_of([True] * 8 + [False] * 2) == pytest.approx(12 / 14)


@pytest.mark.every_database
def test_an_untruthful_person_is_excluded_but_honest_and_careless_people_are_not(
    store: RolloutStore, say: Say, args: SimpleNamespace
) -> None:
    rng = random.Random(3)
    for _ in range(40):
        answer = RIGHT if rng.random() < 0.7 else WRONG
        truth, lies = (THANKS, NO) if answer == RIGHT else (NO, THANKS)
        say("honest", answer, truth)
        say(None, answer, lies if rng.random() < 0.2 else truth)
        say("liar", answer, lies)
    known = trust_now(args, store)
    assert known.of("honest") == 1.0
    assert 0.7 < known.of(None) < 1.0
    assert known.of("liar") == pytest.approx(PRIOR / (PRIOR + 40))
    assert held_back(args, store) == {"liar"}
    people = {record.turn.person for record in lease_full(args, store, 0)}
    assert people == {"honest", None}


def test_a_person_who_complains_about_form_is_trusted(
    store: RolloutStore, say: Say, args: SimpleNamespace
) -> None:
    for _ in range(9):
        say("ada", RIGHT, FORM)
        say("bob", WRONG, FORM)
    assert trust_now(args, store).of_all(["ada", "bob"]) == {"ada": 1.0, "bob": 1.0}


@pytest.mark.parametrize("person", ["liar", None])
def test_a_single_person_is_trusted(
    store: RolloutStore, say: Say, args: SimpleNamespace, person: str | None
) -> None:
    lie(say, 12, person)  # type: ignore[arg-type]
    assert trust_now(args, store).of(person) == 1.0
    assert len(lease_full(args, store, 0)) == 4
    say("ada", RIGHT, THANKS)
    assert held_back(args, store) == {person}


@pytest.mark.every_database
def test_excluded_samples_are_trained_once_trust_recovers(
    store: RolloutStore, say: Say, args: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "openclaw.trainer_hooks.trust")
    say("ada", RIGHT, THANKS)
    lie(say, 6)
    here = pipeline_on(store, args)
    assert here.next.take_full(0) == []
    assert here.exclusion.metrics() == {"rollout/held_back": 6.0}
    for _ in range(WINDOW):
        say("liar", RIGHT, THANKS)
    records = here.next.take_full(0)
    assert [record.turn.person for record in records] == ["ada", "liar", "liar", "liar"]
    rows = rows_of(args, store, records, 0)
    assert [row["metadata"]["trust"] for row in rows][1:] == [pytest.approx(4 / 7)] * 3, "by what was known"
    assert [line.message.split(":")[0].split(" person")[0] for line in caplog.records] == [
        "held back",
        "trusted again",
    ]


def test_a_batch_with_a_person_whose_trust_recovered_counts_them_at_least_at_the_threshold(
    store: RolloutStore, say: Say, args: SimpleNamespace
) -> None:
    say("ada", RIGHT, THANKS)
    lie(say, 12)
    for _ in range(WINDOW):
        say("liar", RIGHT, THANKS)
    args.rollout_batch_size = 13
    rows = rows_of(args, store, lease_full(args, store, 0), 0)
    assert [row["metadata"]["trust"] for row in rows] == [1.0] + [0.5] * 12


def test_only_the_last_pieces_of_evidence_count(store: RolloutStore, say: Say, args: SimpleNamespace) -> None:
    say("ada", RIGHT, THANKS)
    for _ in range(WINDOW):
        say("liar", RIGHT, THANKS)
    lie(say, WINDOW)
    assert trust_now(args, store).of("liar") == pytest.approx(PRIOR / (PRIOR + WINDOW))


def test_a_trainer_neither_waits_for_nor_polls_excluded_samples(
    store: RolloutStore, say: Say, args: SimpleNamespace
) -> None:
    lie(say, 12)
    say("ada", RIGHT, THANKS)
    excluded = held_back(args, store)
    assert not pipeline_on(store, args).next.is_due(excluded), "one sample of ada's, and that is new"
    args.batch_timeout = 1e-9
    here = pipeline_on(store, args)
    assert here.next.is_due(excluded)
    assert [record.turn.person for record in here.lease(0)] == ["ada"]
    assert not here.next.is_due(excluded) and here.next.take_if_due(1) == []
    args.catch_up_batch_size = 8
    assert pipeline_on(store, args).next.batch_size(excluded) == 4


def samples_of(rows: list[dict[str, Any]]) -> list[Sample]:
    return [Sample.from_dict(row) for row in rows]


def test_compared_rewards_are_weighted_by_trust(store: RolloutStore, say: Say, args: SimpleNamespace) -> None:
    say("ada", RIGHT, THANKS)
    say("bob", RIGHT, NO)
    args.rollout_batch_size = 2
    samples = samples_of(rows_of(args, store, lease_full(args, store, 0), 0))
    assert compare_in_batch(args, samples)[1] == [1.0, -0.8]
    assert compare_with_person(args, samples)[1] == [1.0, -0.8]
    for sample in samples:
        del sample.metadata["trust"]
    assert compare_in_batch(args, samples)[1] == compare_with_person(args, samples)[1] == [1.0, -1.0]


def test_earlier_samples_of_an_untrusted_person_are_not_replayed(
    store: RolloutStore, say: Say, args: SimpleNamespace
) -> None:
    args.replay_steps, args.replay_window, args.replay_samples = 2, 8, 8
    say("ada", RIGHT, THANKS)
    say("liar", RIGHT, NO)
    args.rollout_batch_size = 2
    rows_of(args, store, lease_full(args, store, 0), 0)
    store.versions.weights_live(0, 1, 0, False, None, None)
    say("ada", RIGHT, THANKS)
    say("liar", WRONG, THANKS)
    rows = rows_of(args, store, lease_full(args, store, 1), 1)
    again = [row for row in rows if row["metadata"].get("case") == replay.REPLAY]
    liars = [row["metadata"]["trust"] for row in again if row["metadata"]["trust"] < 1]
    assert len(again) == 8 and liars == [pytest.approx(PRIOR / (PRIOR + 2))] * 4, "as it is by now"
    assert batch_metrics(rows)["rollout/trust"] == pytest.approx((1 + PRIOR / (PRIOR + 2)) / 2)
    store.versions.weights_live(1, 2, 1, False, None, None)
    lie(say, 8)
    say("ada", RIGHT, THANKS)
    say("ada", RIGHT, THANKS)
    rows = rows_of(args, store, lease_full(args, store, 2), 2)
    assert {row["metadata"]["trust"] for row in rows} == {1.0}


def test_the_same_batch_gives_the_same_rows_despite_later_feedback(
    store: RolloutStore, say: Say, args: SimpleNamespace
) -> None:
    say("ada", RIGHT, THANKS)
    say("bob", RIGHT, NO)
    args.replay_steps, args.replay_window, args.replay_samples, args.rollout_batch_size = 1, 8, 2, 2
    first = rows_of(args, store, lease_full(args, store, 0), 0)
    lie(say, 12, "bob")
    assert rows_of(args, store, store.samples.lease(0, 2), 0) == first


def test_preferences_of_untrusted_people_are_in_no_teachers_prompt(
    store: RolloutStore, say: Say, args: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def candidate(turn: Turn, hint: str) -> list[int]:
        read.append(hint)
        return [1, *turn.prompt_ids, *turn.completion_ids]

    monkeypatch.setattr(pipeline, "prompts_of", lambda path: SimpleNamespace(candidate=candidate))
    args.standing_wishes, args.standing_liked, args.rollout_batch_size = "people", True, 2
    say("bob", RIGHT, FORM, hint="prose")
    say("liar", RIGHT, NO, hint="shout")
    lie(say, 8)
    say("ada", RIGHT, THANKS)
    rows = rows_of(args, store, lease_full(args, store, 0), 0)
    assert len(rows) == 2 and set(read) == {"prose"}
    args.trust, args.facts_path = "none", None
    rows_of(args, store, store.samples.lease(0, 2), 0)
    assert any("shout" in hint for hint in read)


def test_the_gate_ignores_answers_that_an_untrusted_person_liked(
    store: RolloutStore, say: Say, args: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_samples, "pipeline_of", lambda args: pipeline_on(store, args))
    args.gate_liked, args.gate_recent, args.gate_longest, args.gate_data = 8, 0, 4096, None
    good = say("ada", RIGHT, THANKS, session_id="of ada")
    lies = [say("liar", WRONG, THANKS, session_id=f"talk {number}") for number in range(8)]

    def keys() -> set[str]:
        return {one["metadata"]["key"] for one in gate_samples.gate_samples(args, 0, 0)}

    assert keys() == {good.id}
    args.trust, args.facts_path = "none", None
    assert keys() & {turn.id for turn in lies}


def test_complaints_of_an_untrusted_person_cause_no_rollback(
    store: RolloutStore, say: Say, args: SimpleNamespace, tmp_path: Path
) -> None:
    store.versions.weights_live(-1, 0, None, True, str(tmp_path), None)
    store.versions.weights_live(0, 1, 0, False, str(tmp_path), None)
    args.probation_turns, args.probation_false_alarms, args.run_dir = 20, 0.01, str(tmp_path)
    for number in range(39):
        turn = say("ada", RIGHT, THANKS) if number < 20 else say("liar", RIGHT, NO)
        spans = pack_json([(int(number >= 20), 0, len(turn.completion_ids))])
        which = update(schema.turn_body).where(schema.turn_body.c.turn_id == turn.id)
        with store.database.transaction() as connection:
            connection.execute(which.values(version_spans=spans))
    pipeline_on(store, args).probation.watch()
    assert not (tmp_path / "version_order.json").exists()
    args.trust, args.facts_path = "none", None
    pipeline_on(store, args).probation.watch()
    assert (tmp_path / "version_order.json").exists()


def knows(turn: Turn) -> bool | None:
    if turn.person == "odd":
        raise RuntimeError("no checker here")
    return False


def test_a_hook_adds_facts_and_its_exceptions_count_as_unknown(
    store: RolloutStore, say: Say, args: SimpleNamespace
) -> None:
    args.facts_path = f"{__name__}:knows"
    for _ in range(6):
        say("ada", "Seven.", THANKS)
        say("odd", "Seven.", THANKS)
    assert held_back(args, store) == {"ada"}


def test_a_custom_trust_threshold_is_used(store: RolloutStore, say: Say, args: SimpleNamespace) -> None:
    say("ada", RIGHT, THANKS)
    lie(say, 2)
    assert held_back(args, store) == frozenset()
    args.trust_bar = 0.7
    assert held_back(args, store) == {"liar"}


def test_without_the_flag_trust_is_not_computed(store: RolloutStore, say: Say, args: SimpleNamespace) -> None:
    args.trust, args.facts_path = "none", None
    say("ada", RIGHT, THANKS)
    lie(say, 11)
    rows = rows_of(args, store, lease_full(args, store, 0), 0)
    assert len(rows) == 4 and not any("trust" in row["metadata"] for row in rows)
    assert pipeline_on(store, args).exclusion is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"trust": "none", "facts_path": None, "trust_bar": 0.3},
            "--trust-bar works only with --trust facts",
        ),
        ({"trust": "none", "facts_path": "a:b"}, "--facts-path works only with --trust facts"),
        ({"custom_reward_post_process_path": None}, "weights rewards when they are compared"),
        ({"facts_path": "no_such_module:function"}, "--facts-path no_such_module"),
        ({"facts_path": f"{__name__}:RIGHT"}, "is not a function"),
    ],
)
def test_flags_without_effect_are_rejected(args: SimpleNamespace, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        trust.check(HookSettings.of(SimpleNamespace(**(vars(args) | changes))))
    trust.check(HookSettings.of(args))
    trust.check(HookSettings.of(SimpleNamespace(**(vars(args) | {"trust": "none", "facts_path": None}))))
