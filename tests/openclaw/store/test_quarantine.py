"""Samples of rejected and rolled-back updates: not trained until released or deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openclaw.errors import StoreError
from openclaw.store import RolloutStore
from openclaw.types import Turn

pytestmark = pytest.mark.every_database

MakeSample = Callable[..., Turn]
WHY = {"reason": "KL is 9", "stage": "answers", "measurements": {"kl": 9.0}}


def train(store: RolloutStore, make_sample: MakeSample, rollout_id: int) -> None:
    make_sample()
    store.samples.lease(rollout_id, 1)
    store.versions.weights_live(rollout_id, rollout_id + 1, rollout_id, False, None, None)


@pytest.fixture
def two_versions(store: RolloutStore, make_sample: MakeSample) -> RolloutStore:
    """Versions 1 and 2 went live in order, each trained on one sample."""
    store.versions.weights_live(-1, 0, None, True, None, None)
    train(store, make_sample, 0)
    train(store, make_sample, 1)
    return store


def statuses(store: RolloutStore) -> dict[int, str]:
    return {version.version: str(version.status) for version in store.versions.all()}


def test_a_rejected_version_is_recorded_with_its_measurements_and_its_samples_are_quarantined(
    two_versions: RolloutStore, make_sample: MakeSample
) -> None:
    store = two_versions
    make_sample()
    make_sample()
    store.samples.lease(2, 1)
    for _ in range(2):
        store.versions.weights_rejected(2, 3, 2, "sum", WHY)
    assert statuses(store) == {0: "superseded", 1: "superseded", 2: "live", 3: "rejected"}
    assert store.versions.all()[3].details == WHY and store.versions.live() == 2
    assert store.status.counts()["samples"] == {"trained": 2, "quarantined": 1, "ready": 1}
    assert store.quarantine.counts() == {3: 1}
    assert not store.samples.has_lease(2), "the number of the rollout is free"


def test_a_restarted_trainer_keeps_the_quarantine(
    two_versions: RolloutStore, make_sample: MakeSample
) -> None:
    store = two_versions
    make_sample()
    store.samples.lease(2, 1)
    store.versions.weights_rejected(2, 3, 2, None, WHY)
    store.versions.weights_live(1, 2, 1, True, None, None)
    assert store.status.counts()["samples"] == {"trained": 2, "quarantined": 1}
    assert statuses(store)[3] == "rejected"


def test_quarantined_samples_are_released_or_deleted_by_version(
    two_versions: RolloutStore, make_sample: MakeSample
) -> None:
    store = two_versions
    for rollout_id in (2, 3):
        make_sample()
        store.samples.lease(rollout_id, 1)
        store.versions.weights_rejected(rollout_id, rollout_id + 1, 2, None, WHY)
    assert store.quarantine.release(3) == 1 and store.quarantine.release(3) == 0
    assert store.quarantine.delete() == 1
    assert store.status.counts()["samples"] == {"trained": 2, "ready": 1, "dropped": 1}
    assert store.status.counts()["dropped"] == {"quarantine_deleted": 1}
    assert [sample.id for sample in store.samples.lease(4, 4)] == [3]


def test_a_version_that_was_live_cannot_be_rejected(two_versions: RolloutStore) -> None:
    with pytest.raises(StoreError, match="version 2 of trainer is live"):
        two_versions.versions.weights_rejected(1, 2, 1, None, WHY)


def test_a_rollback_makes_samples_ready_again_and_ends_leases(
    two_versions: RolloutStore, make_sample: MakeSample
) -> None:
    store = two_versions
    make_sample()
    store.samples.lease(2, 1)
    assert store.versions.roll_back(1, reason="by hand") == [2]
    assert statuses(store) == {0: "superseded", 1: "live", 2: "rolled_back"}
    assert store.versions.all()[2].details == {"undone": "by hand"}
    assert store.status.counts()["samples"] == {"trained": 1, "ready": 2}
    assert len(store.samples.lease(2, 2)) == 2, "whoever asks again has the oldest ones"
    store.versions.weights_live(2, 3, 1, False, None, None)
    assert store.status.counts()["samples"] == {"trained": 3}


def test_samples_restored_with_their_version_are_not_leased_again(
    two_versions: RolloutStore,
) -> None:
    """A waiting batch must not be trained a second time when its samples' version is restored."""
    store = two_versions
    assert store.versions.roll_back(0) == [1, 2]
    leased = {one.id for one in store.samples.lease(2, 2)}
    assert len(leased) == 2
    store.versions.roll_back(2)
    assert store.status.counts()["samples"] == {"trained": 2}
    assert store.samples.lease(2, 2) == [], (
        "asked again, the same rollout gets nothing that is in the weights"
    )


def test_a_rollback_that_drops_turns_keeps_them_from_being_trained_again(two_versions: RolloutStore) -> None:
    store = two_versions
    assert store.versions.roll_back(0, drop_turns=True) == [1, 2]
    assert store.versions.roll_back(0, drop_turns=True) == []
    assert store.versions.roll_back(2) == [] and store.status.counts()["samples"] == {"trained": 2}, (
        "brought back, it knows them"
    )
    store.versions.roll_back(0, drop_turns=True)
    assert store.status.counts()["samples"] == {"quarantined": 2} and store.versions.live() == 0
    store.versions.weights_live(-1, 0, None, True, None, None)
    assert store.status.counts()["samples"] == {"quarantined": 2}, "a restart does not bring them back"
    assert store.quarantine.counts() == {1: 1, 2: 1}
    assert store.quarantine.release() == 2


def test_a_rollback_to_a_version_that_was_never_live_is_rejected(
    two_versions: RolloutStore, make_sample: MakeSample
) -> None:
    store = two_versions
    make_sample()
    store.samples.lease(2, 1)
    store.versions.weights_rejected(2, 3, 2, None, WHY)
    for version in (3, 8):
        with pytest.raises(StoreError, match=f"version {version} of trainer was never live"):
            store.versions.roll_back(version)
