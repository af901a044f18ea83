from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from openclaw.errors import StoreError
from openclaw.store import RolloutStore
from openclaw.types import SampleState, Turn

pytestmark = pytest.mark.every_database

MakeSample = Callable[..., Turn]


def _ids(store: RolloutStore, rollout_id: int, batch_size: int, **trainer: str) -> list[int]:
    return [sample.id for sample in store.samples.lease(rollout_id, batch_size, **trainer)]


def test_surplus_samples_stay_for_the_next_batch(store: RolloutStore, make_sample: MakeSample) -> None:
    for _ in range(5):
        make_sample()
    assert _ids(store, 0, 4) == [1, 2, 3, 4]
    assert store.samples.ready_count() == 1
    assert _ids(store, 1, 4) == [5]
    assert _ids(store, 2, 4) == []


def test_the_same_rollout_gets_the_same_samples(store: RolloutStore, make_sample: MakeSample) -> None:
    first = [make_sample(), make_sample()]
    assert [sample.turn.id for sample in store.samples.lease(7, 2)] == [turn.id for turn in first]
    make_sample()
    assert _ids(store, 7, 3) == [1, 2]
    assert store.samples.has_lease(7) and not store.samples.has_lease(8)


def test_an_update_is_in_flight_from_its_lease_to_its_commit(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    make_sample()
    assert not store.samples.has_update_in_flight("a")
    store.samples.lease(0, 1, trainer="a")
    assert store.samples.has_update_in_flight("a") and not store.samples.has_update_in_flight("b")
    assert not store.samples.has_update_in_flight("a", before_rollout_id=0)
    assert store.samples.has_update_in_flight("a", before_rollout_id=1)
    store.samples.commit_lease(0, version=1, trainer="a")
    assert not store.samples.has_update_in_flight("a")


def test_two_trainers_never_lease_the_same_sample(store: RolloutStore, make_sample: MakeSample) -> None:
    for _ in range(4):
        make_sample()
    assert _ids(store, 0, 3, trainer="a") == [1, 2, 3]
    assert _ids(store, 0, 3, trainer="b") == [4]


def test_a_sample_includes_its_turn(store: RolloutStore, make_sample: MakeSample) -> None:
    turn = make_sample(reward=-1.0)
    (sample,) = store.samples.lease(0, 1)
    assert sample.turn.completion_log_probs == turn.completion_log_probs
    assert sample.reward == {"score": -1.0} and sample.loss_mask is None
    assert (sample.state, sample.rollout_id, sample.trainer) == (SampleState.LEASED, 0, "trainer")


def test_committing_a_lease_twice_changes_nothing(store: RolloutStore, make_sample: MakeSample) -> None:
    make_sample()
    store.samples.lease(0, 1)
    assert store.samples.commit_lease(0, version=1) == 1
    assert store.samples.commit_lease(0, version=1) == 0
    assert store.status.counts()["samples"] == {"trained": 1}


def test_a_rollout_cannot_be_trained_twice(store: RolloutStore, make_sample: MakeSample) -> None:
    make_sample()
    store.samples.lease(0, 1)
    store.samples.commit_lease(0, version=1)
    with pytest.raises(StoreError, match="already trained, as version 1"):
        store.samples.commit_lease(0, version=2)
    with pytest.raises(StoreError, match="already trained, as version 1"):
        store.samples.lease(0, 1)


def test_released_leases_except_one_are_ready_again(store: RolloutStore, make_sample: MakeSample) -> None:
    for _ in range(2):
        make_sample()
    store.samples.lease(0, 1)
    store.samples.lease(1, 1)
    assert store.samples.release_leases(except_rollout_id=1) == 1
    assert store.status.counts()["samples"] == {"ready": 1, "leased": 1}
    assert _ids(store, 2, 1) == [1]


def test_another_trainers_leases_are_not_released(store: RolloutStore, make_sample: MakeSample) -> None:
    make_sample()
    store.samples.lease(0, 1, trainer="a")
    assert store.samples.release_leases(trainer="b") == 0
    assert store.status.counts()["samples"] == {"leased": 1}


def test_the_oldest_ready_sample_defines_the_waiting_time_of_a_batch(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    assert store.samples.oldest_ready_at() is None
    make_sample()
    first = store.samples.oldest_ready_at()
    make_sample()
    assert store.samples.oldest_ready_at() == first
    store.samples.lease(0, 1)
    later = store.samples.oldest_ready_at()
    assert first is not None and later is not None and later > first


def test_the_oldest_ready_samples_are_read_from_an_index_without_sorting(tmp_path: Path) -> None:
    store = RolloutStore(tmp_path)
    said: list[tuple[str, Any]] = []
    event.listen(
        store.database.engine,
        "before_cursor_execute",
        lambda _c, _u, sql, values, *_: said.append((sql, values)),
    )
    store.samples.lease(0, 4)
    store.samples.oldest_ready_at()
    oldest = [one for one in said if "ORDER BY sample.created_at" in one[0] or "min(" in one[0]]
    with store.database.reading() as connection:
        plans = [
            str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values).all())
            for sql, values in oldest
        ]
    assert len(plans) == 2 and all("sample_oldest" in plan for plan in plans)
    assert not any("TEMP B-TREE" in plan for plan in plans)
