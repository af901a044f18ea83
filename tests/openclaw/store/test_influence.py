"""Versions and rollouts that learned from a person, and samples of a reset adapter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openclaw.store import RolloutStore
from openclaw.store.influence import Influence
from openclaw.types import NewTurn, SampleState, Turn

MakeTurn = Callable[..., NewTurn]
MakeSample = Callable[..., Turn]
OF_ADA = "policy::ada"


def step(store: RolloutStore, rollout_id: int, version: int, trainer: str = "trainer") -> None:
    """Trains all ready samples of the trainer."""
    store.samples.lease(rollout_id, 9, trainer)
    store.versions.weights_live(
        rollout_id, version, version - 1, False, f"/v{version}", f"sum{version}", trainer
    )


@pytest.mark.every_database
def test_the_rollback_of_shared_weights_names_the_version_and_other_peoples_losses(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    store.versions.weights_live(-1, 0, None, True, "/v0", "sum0")
    for version, people in enumerate((["bob"], ["ada", "bob"], ["bob"], ["ada", "eve"]), 1):
        for person in people:
            make_sample(person=person)
        step(store, version, version)
    assert store.influence.of("ada") == [Influence(None, 2, first=2, before=1, versions=3, others=3)]
    assert store.influence.of("nobody") == []
    store.versions.roll_back(1)
    assert store.influence.of("ada") == [], "no version that survives learned from them"


@pytest.mark.every_database
def test_influence_covers_versions_since_the_first_turn_and_all_of_an_own_adapter(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    make_sample(person="bob")
    step(store, 0, 1)
    make_sample(person="ada")
    step(store, 1, 2)
    make_sample(person="bob")
    step(store, 2, 3)
    make_sample(person="ada", policy_id=OF_ADA)
    step(store, 3, 1, "trainer::ada")
    make_sample(person="bob", policy_id="policy::bob")
    step(store, 4, 1, "trainer::bob")
    assert store.influence.rollouts_of("ada") == [1, 2, 3]
    store.deletion.delete_person("ada")
    assert not store.influence.is_known("ada") and store.influence.is_known("ada", "ada")
    assert store.influence.rollouts_of("ada", "ada") == [3]
    store.versions.forget("trainer::ada")
    assert not store.influence.is_known("ada", "ada") and store.influence.rollouts_of("ada", "ada") == []


@pytest.mark.every_database
def test_a_reset_adapter_has_no_versions_and_relearns_the_remaining_samples(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    mine = make_sample(person="ada", policy_id=OF_ADA)
    others = make_sample(person="guest", policy_id=OF_ADA)
    bobs = make_sample(person="bob", policy_id="policy::bob")
    step(store, 0, 1, "trainer::ada")
    step(store, 1, 1, "trainer::bob")
    store.deletion.delete_person("ada")
    assert store.versions.forget("trainer::ada") == 1
    assert store.versions.forget("trainer::ada") == 0
    assert store.versions.of_adapters() == {"bob": 1}
    assert store.samples.of_turn(mine.id) is None
    states = {turn.id: store.samples.of_turn(turn.id) for turn in (others, bobs)}
    assert [one.state if one else None for one in states.values()] == [SampleState.READY, SampleState.TRAINED]
