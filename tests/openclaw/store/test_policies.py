"""A trainer reads only the turns of its own policy: the base's, or one adapter's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openclaw.store import RolloutStore
from openclaw.types import Judgement, NewTurn, SampleDraft, SampleState, Turn, Vote, adapter_of, policy_of

MakeSample = Callable[..., Turn]
NAMES = (None, "ada", "Ada", "a_a", "aXa", "mada")
"""Names that a search with wildcards or without regard to case would confuse."""


def trainer(name: str | None) -> str:
    return policy_of("trainer", name)


@pytest.mark.parametrize(
    ("name", "adapter"),
    [("policy", None), ("policy::ada", "ada"), ("a::b::c", "c"), ("::ada", None), ("policy::", "")],
)
def test_policies_and_their_trainers_have_the_same_names(name: str, adapter: str | None) -> None:
    assert adapter_of(name) == adapter


@pytest.mark.every_database
def test_each_trainer_counts_leases_and_remembers_its_own_turns(
    store: RolloutStore, make_sample: MakeSample, make_turn: Callable[..., NewTurn]
) -> None:
    own = {name: [make_sample(policy_id=policy_of("policy", name)).id for _ in range(2)] for name in NAMES}
    assert store.policies.waiting() == sorted(name for name in NAMES if name)
    for rollout_id, name in enumerate(NAMES):
        mine = trainer(name)
        assert store.samples.ready_count(trainer=mine) == 2, name
        assert store.samples.leasable_count(9, mine) == store.samples.leasable_count(9, mine, share=0.5) == 2
        assert store.samples.oldest_ready_at(trainer=mine) is not None
        assert {one.id for one in store.gate_turns.newest(99, mine)} == set(own[name])
        assert {one.id for one in store.gate_turns.liked(99, trainer=mine)} <= set(own[name])
        leased = store.samples.lease(rollout_id, 9, mine)
        assert [one.turn.id for one in leased] == own[name]
        assert {one.turn.id for one in store.samples.learned_before(99, 9, mine)} == set(own[name])
        assert store.samples.ready_count(trainer=mine) == 0
    assert store.policies.waiting() == sorted(name for name in NAMES if name), (
        "leased ones wait for their step"
    )


def test_preferences_are_listed_by_policy(store: RolloutStore, make_turn: Callable[..., NewTurn]) -> None:
    turns = {}
    for name in NAMES:
        turn = store.turns.record(make_turn(policy_id=policy_of("policy", name), person="ada"))
        store.turns.answer(turn.id, [{"role": "user", "content": "No."}])
        hint = Judgement(kind="hint", score=1, votes=[Vote(score=1)], hints=[f"wish of {name}"], judge="test")
        assert store.judgements.finish(turn.id, [hint], SampleDraft(turn_id=turn.id, reward={"score": -1.0}))
        turns[name] = turn.id
    every = list(turns.values())
    for name in NAMES:
        found = store.memory.asked_for(every, people=9, each=9, trainer=trainer(name))
        assert found == {"ada": [f"wish of {name}"]}
        said = store.memory.asked_by(every, 9, {"ada"}, trainer(name))
        assert [one.turn_id for one in said["ada"]] == [turns[name]]


def test_a_preference_is_only_in_prompts_of_its_policy(
    store: RolloutStore, make_turn: Callable[..., NewTurn]
) -> None:
    """The same words to two policies are two preferences, and a version of one policy cannot satisfy the other's."""
    for name in (None, "ada", "bob"):
        changes = {"policy_id": policy_of("policy", name), "person": "eve", "memory": []}
        turn = store.turns.record(make_turn(**changes))
        store.turns.answer(turn.id, [{"role": "user", "content": "No."}])
        hint = Judgement(kind="hint", score=1, votes=[Vote(score=1)], hints=["be brief"], judge="test")
        assert store.judgements.finish(turn.id, [hint], SampleDraft(turn_id=turn.id, reward={"score": -1.0}))
        store.versions.weights_live(-1, 3, None, True, "path", "sum", trainer=trainer(name))
    names = (None, "ada", "bob")
    found = {name: store.memory.remembered("eve", trainer=trainer(name)) for name in names}
    assert [[one.text for one in wishes] for wishes in found.values()] == [["be brief"]] * 3
    assert len({wishes[0].id for wishes in found.values()}) == 3
    assert store.memory.remembered("eve", trainer=trainer("eve")) == []
    assert {name: len(store.memory.waiting(trainer(name))) for name in names} == dict.fromkeys(names, 1)
    for name in names:
        [turn] = store.memory.canary_turns("eve", 9, trainer=trainer(name))
        assert turn.policy_id == policy_of("policy", name)
    store.memory.hold(found["ada"][0].id, 3, {})
    store.versions.roll_back(3, trainer=trainer("ada"))
    left = {name: len(store.memory.remembered("eve", trainer=trainer(name))) for name in names}
    assert left == {None: 1, "ada": 0, "bob": 1}
    store.memory.hold(found["bob"][0].id, 4, {})
    store.versions.weights_live(9, 4, 3, False, "path", "sum", trainer=trainer("ada"))
    assert len(store.memory.remembered("eve", trainer=trainer("bob"))) == 1, "version 4 is another adapter's"


def test_a_score_is_compared_with_those_of_the_same_policy(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    """For one person, and for turns without a person."""
    for person in ("ada", None):
        last = {}
        for number, name in enumerate(NAMES * 2):
            reward = 1.0 if number % len(NAMES) == 1 else -1.0
            last[name] = make_sample(reward, policy_id=policy_of("policy", name), person=person).id
        found = {name: store.people.scores_before(turn_id, 99) for name, turn_id in last.items()}
        assert found == {name: [1.0 if name == "ada" else -1.0] for name in NAMES}
    assert store.people.scores_before("unknown", 99) == []


def test_every_adapter_has_its_own_version_numbers(store: RolloutStore, make_sample: MakeSample) -> None:
    """An adapter's version is not the model's live one, and staleness is counted by the adapter's own versions."""
    for name in (None, "ada"):
        make_sample(policy_id=policy_of("policy", name))
    store.versions.weights_live(-1, 7, None, True, "path", "sum", trainer=trainer("ada"))
    assert store.versions.live() == 0 and store.versions.live(trainer("ada")) == 7
    assert store.samples.drop_stale(5, trainer("ada")) == 1
    assert store.samples.ready_count() == 1 and store.samples.ready_count(trainer=trainer("ada")) == 0
    assert store.status.counts()["samples"] == {str(SampleState.READY): 1, str(SampleState.DROPPED): 1}
