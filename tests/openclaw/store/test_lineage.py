"""Recovery: the store's state after crashes at each point of a weight update."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import event

from openclaw.errors import StoreError
from openclaw.store import RolloutStore
from openclaw.types import SampleState, Turn, VersionStatus

MakeSample = Callable[..., Turn]


def _live(
    store: RolloutStore,
    rollout_id: int,
    version: int,
    parent: int | None,
    restored: bool = False,
    trainer: str = "trainer",
) -> None:
    store.versions.weights_live(
        rollout_id, version, parent, restored, f"/v{version}", f"sum{version}", trainer
    )


def _train(store: RolloutStore, make_sample: MakeSample, rollout_id: int, version: int, parent: int) -> None:
    make_sample()
    store.samples.lease(rollout_id, 1)
    _live(store, rollout_id, version, parent)


def _trained(store: RolloutStore) -> dict[int, int | None]:
    samples = store.samples.get(list(range(1, 20)))
    return {sample.id: sample.trained_version for sample in samples if sample.state is SampleState.TRAINED}


def _statuses(store: RolloutStore) -> dict[int, str]:
    return {version.version: str(version.status) for version in store.versions.all()}


@pytest.mark.every_database
def test_a_live_version_commits_its_lease_and_supersedes_its_parent(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    _live(store, -1, 0, None, restored=True)
    _train(store, make_sample, 0, 1, parent=0)
    assert store.versions.live() == 1
    assert _trained(store) == {1: 1}
    assert _statuses(store) == {0: "superseded", 1: "live"}
    assert store.versions.all()[1].checksum == "sum1"


@pytest.mark.every_database
def test_repeating_a_store_update_changes_nothing(store: RolloutStore, make_sample: MakeSample) -> None:
    _live(store, -1, 0, None, restored=True)
    _train(store, make_sample, 0, 1, parent=0)
    _train(store, make_sample, 1, 2, parent=1)
    before = store.versions.all()
    _live(store, 0, 1, 0)
    _live(store, 1, 2, 1)
    assert store.versions.all() == before
    assert _trained(store) == {1: 1, 2: 2}


def test_a_crash_between_lease_and_commit_makes_the_samples_ready_again(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    _live(store, -1, 0, None, restored=True)
    _train(store, make_sample, 0, 1, parent=0)
    make_sample()
    store.samples.lease(1, 1)
    _live(store, 0, 1, 0, restored=True)
    assert _trained(store) == {1: 1}
    assert [sample.id for sample in store.samples.lease(1, 1)] == [2]


def test_a_crash_between_checkpoint_and_commit_commits_at_restart(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    _live(store, -1, 0, None, restored=True)
    make_sample()
    store.samples.lease(0, 1)
    _live(store, 0, 1, 0, restored=True)
    assert _trained(store) == {1: 1}
    assert store.versions.live() == 1


@pytest.mark.parametrize("restored_from", [0, 1])
def test_a_crash_during_overlapped_training_releases_samples_that_are_in_no_checkpoint(
    restored_from: int, store: RolloutStore, make_sample: MakeSample
) -> None:
    """Three leases are open: of the version being published, of the step in training, and of the batch being
    collected."""
    _live(store, -1, 0, None, restored=True)
    for rollout_id in range(3):
        make_sample()
        store.samples.lease(rollout_id, 1)
    _live(store, restored_from - 1, restored_from, None if restored_from == 0 else 0, restored=True)
    assert _trained(store) == ({1: 1} if restored_from else {})
    first = restored_from
    again = [[sample.id for sample in store.samples.lease(rollout_id, 1)] for rollout_id in range(first, 3)]
    assert again == [[rollout_id + 1] for rollout_id in range(first, 3)]


def test_a_crash_after_the_commit_loses_nothing(store: RolloutStore, make_sample: MakeSample) -> None:
    _live(store, -1, 0, None, restored=True)
    _train(store, make_sample, 0, 1, parent=0)
    _live(store, 0, 1, 0, restored=True)
    assert _trained(store) == {1: 1}
    assert store.samples.ready_count() == 0


@pytest.mark.every_database
def test_a_trainer_restored_to_an_older_version_gets_the_lost_samples_again(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    _live(store, -1, 0, None, restored=True)
    for rollout_id in range(3):
        _train(store, make_sample, rollout_id, rollout_id + 1, parent=rollout_id)
    _live(store, 0, 1, 0, restored=True)
    assert store.versions.live() == 1
    assert _statuses(store) == {0: "superseded", 1: "live", 2: "rolled_back", 3: "rolled_back"}
    assert _trained(store) == {1: 1}
    assert [sample.id for sample in store.samples.lease(1, 4)] == [2, 3]
    _live(store, 1, 4, 1)
    assert _trained(store) == {1: 1, 2: 4, 3: 4}


def test_a_fresh_trainer_on_a_used_store_trains_everything_again(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    _live(store, -1, 0, None, restored=True)
    _train(store, make_sample, 0, 1, parent=0)
    _live(store, -1, 0, None, restored=True)
    assert store.versions.live() == 0
    assert store.samples.ready_count() == 1


@pytest.mark.every_database
def test_returning_to_a_rolled_back_branch_restores_its_trained_samples(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    _live(store, -1, 0, None, restored=True)
    _train(store, make_sample, 0, 1, parent=0)
    _train(store, make_sample, 1, 2, parent=1)
    _live(store, 0, 1, 0, restored=True)
    store.samples.lease(1, 1)
    _live(store, 1, 3, 1)
    _train(store, make_sample, 2, 4, parent=3)
    assert _trained(store) == {1: 1, 2: 3, 3: 4}
    _live(store, 1, 2, 1, restored=True)
    assert _statuses(store) == {
        0: "superseded",
        1: "superseded",
        2: "live",
        3: "rolled_back",
        4: "rolled_back",
    }
    assert _trained(store) == {1: 1, 2: 2}
    assert store.samples.ready_count() == 1


def test_an_open_lease_of_another_branch_is_not_committed_with_a_restored_version(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    _live(store, -1, 0, None, restored=True)
    _train(store, make_sample, 0, 1, parent=0)
    _train(store, make_sample, 1, 2, parent=1)
    _live(store, 0, 1, 0, restored=True)
    make_sample()
    assert [sample.id for sample in store.samples.lease(1, 4)] == [2, 3]
    _live(store, 1, 2, 1, restored=True)
    assert _trained(store) == {1: 1, 2: 2}
    assert store.samples.ready_count() == 1


def test_a_dropped_sample_stays_dropped_through_a_rollback(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    _live(store, -1, 0, None, restored=True)
    make_sample(drop="neutral_score")
    _train(store, make_sample, 0, 1, parent=0)
    _live(store, -1, 0, None, restored=True)
    assert store.status.counts()["samples"] == {"dropped": 1, "ready": 1}


def test_a_version_number_is_never_reused(store: RolloutStore, make_sample: MakeSample) -> None:
    _live(store, -1, 0, None, restored=True)
    _train(store, make_sample, 0, 1, parent=0)
    with pytest.raises(StoreError, match="already stored with rollout 0, not 1"):
        _live(store, 1, 1, 0)
    with pytest.raises(StoreError, match="already stored with parent 0, not 5"):
        _live(store, 0, 1, 5)
    _live(store, -1, 0, None, restored=True)
    with pytest.raises(StoreError, match="is rolled_back: only a trainer that was restored"):
        _live(store, 0, 1, 0)


def test_a_failed_update_leaves_the_lease_as_it_was(store: RolloutStore, make_sample: MakeSample) -> None:
    _live(store, -1, 0, None, restored=True)
    _train(store, make_sample, 0, 1, parent=0)
    make_sample()
    store.samples.lease(1, 1)
    with pytest.raises(StoreError):
        _live(store, 1, 1, 0)
    assert store.status.counts()["samples"] == {"trained": 1, "leased": 1}
    assert store.versions.live() == 1


def test_a_version_restored_from_elsewhere_needs_no_known_parent(store: RolloutStore) -> None:
    _live(store, 11, 12, 11, restored=True)
    assert store.versions.live() == 12
    assert store.versions.all()[0].parent == 11


def test_one_trainers_rollback_does_not_affect_the_other(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    for name in ("a", "b"):
        _live(store, -1, 0, None, restored=True, trainer=name)
        make_sample()
        store.samples.lease(0, 1, trainer=name)
        _live(store, 0, 1, 0, trainer=name)
    _live(store, -1, 0, None, restored=True, trainer="a")
    assert [sample.id for sample in store.samples.lease(1, 4, trainer="b")] == [1]
    assert [version.status for version in store.versions.all("b")] == [
        VersionStatus.SUPERSEDED,
        VersionStatus.LIVE,
    ]


def test_a_long_run_is_restored_on_a_database_with_few_parameters_per_statement(tmp_path: Path) -> None:
    store = RolloutStore(tmp_path)
    few = sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER
    event.listen(store.database.engine, "checkout", lambda connection, *_: connection.setlimit(few, 600))
    with store.database.transaction():
        for version in range(1500):
            _live(store, -1, version, version - 1 if version else None)
    _live(store, -1, 1400, None, restored=True)
    found = Counter(_statuses(store).values())
    assert found == {"superseded": 1400, "live": 1, "rolled_back": 99} and store.versions.live() == 1400
