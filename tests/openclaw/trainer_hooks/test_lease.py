from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from openclaw.errors import StoreAway, StoreError
from openclaw.methods.rewards import compare_in_batch
from openclaw.store import RolloutStore
from openclaw.trainer_hooks import lease, next_batch, pipeline
from openclaw.types import NewTurn, Turn
from slime.types import Sample
from tests.fakes.hook_flags import hook_flags

MakeSample = Callable[..., Turn]


@pytest.fixture
def args(location: str) -> Iterator[SimpleNamespace]:
    yield hook_flags(location, rollout_batch_size=2, batch_timeout=0.4)
    pipeline._made.clear()


def _timed(args: SimpleNamespace, rollout_id: int) -> tuple[list[dict[str, Any]], float]:
    started = time.monotonic()
    return lease.lease_batch(args, rollout_id), time.monotonic() - started


@pytest.mark.every_database
def test_a_full_batch_is_returned_at_once(args: SimpleNamespace, make_sample: MakeSample) -> None:
    for _ in range(3):
        make_sample()
    args.batch_timeout = 60.0
    batch, seconds = _timed(args, 0)
    assert len(batch) == 2 and seconds < 10


def test_a_batch_grows_if_feedback_arrives_faster_than_training(
    args: SimpleNamespace, make_sample: MakeSample
) -> None:
    for _ in range(9):
        make_sample()
    args.catch_up_batch_size = 5
    assert [len(lease.lease_batch(args, rollout_id)) for rollout_id in range(2)] == [5, 4]
    assert len(lease.lease_batch(args, 0)) == 5
    for _ in range(2):
        make_sample()
    assert len(lease.lease_batch(args, 2)) == 2


def test_one_quiet_user_is_enough_to_train(args: SimpleNamespace, make_sample: MakeSample) -> None:
    make_sample()
    batch, seconds = _timed(args, 0)
    assert len(batch) == 1 and 0.2 < seconds < 10


def test_a_batch_is_not_delayed_by_a_clock_that_was_set_back(
    args: SimpleNamespace, make_sample: MakeSample, monkeypatch: pytest.MonkeyPatch
) -> None:
    args.rollout_batch_size, args.batch_timeout = 4, 60.0
    make_sample()
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - 3600)
    samples, waited = _timed(args, 0)
    assert len(samples) == 1 and waited < 30.0


def test_a_batch_waits_for_an_unreachable_database_server(
    args: SimpleNamespace, make_sample: MakeSample, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sample()
    make_sample()
    monkeypatch.setattr(next_batch, "AWAY_SECONDS", 0.01)
    store, tries = pipeline.pipeline_of(args).store, []
    has_lease = store.samples.has_lease

    def away(*words: Any) -> bool:
        tries.append(words)
        if len(tries) < 4:
            raise StoreAway("the server is stopped")
        return has_lease(*words)

    monkeypatch.setattr(store.samples, "has_lease", away)
    assert len(lease.lease_batch(args, 0)) == 2 and len(tries) == 4


def test_with_dreams_a_batch_waits_until_the_update_before_it_is_live(
    args: SimpleNamespace, make_sample: MakeSample
) -> None:
    args.dream_steps, args.catch_up_batch_size = 2, 8
    make_sample()
    make_sample()
    here = pipeline.pipeline_of(args)
    assert len(here.next.take_if_due(0)) == 2
    for _ in range(3):
        make_sample()
    assert here.next.take_if_due(1) == []
    make_sample()
    here.store.samples.commit_lease(0, version=1)
    assert len(here.next.take_if_due(1)) == 4


def test_a_repeated_batch_with_dreams_does_not_wait_for_the_batch_after_it(
    args: SimpleNamespace, make_sample: MakeSample
) -> None:
    args.dream_steps = 2
    for _ in range(4):
        make_sample()
    here = pipeline.pipeline_of(args)
    here.store.samples.lease(1, 2)
    assert len(here.next.take_if_due(0)) == 2


def test_a_batch_with_dreams_does_not_wait_forever_for_the_update_before_it(
    args: SimpleNamespace, make_sample: MakeSample, monkeypatch: pytest.MonkeyPatch
) -> None:
    args.dream_steps = 2
    for _ in range(4):
        make_sample()
    here = pipeline.pipeline_of(args)
    assert len(here.next.take_if_due(0)) == 2 and here.next.take_if_due(1) == []
    monkeypatch.setattr(next_batch, "UPDATE_SECONDS", 0.0)
    assert len(here.next.take_if_due(1)) == 2


def test_an_empty_store_blocks_until_a_batch_is_ready(args: SimpleNamespace, make_sample: MakeSample) -> None:
    batches: list[list[dict[str, Any]]] = []
    waiting = threading.Thread(target=lambda: batches.append(lease.lease_batch(args, 0)), daemon=True)
    waiting.start()
    time.sleep(0.7)
    assert waiting.is_alive() and batches == []
    make_sample()
    make_sample()
    waiting.join(timeout=5)
    assert len(batches[0]) == 2


def test_a_restarted_trainer_gets_its_lease_again_without_waiting(
    args: SimpleNamespace, make_sample: MakeSample
) -> None:
    for _ in range(2):
        make_sample()
    first = lease.lease_batch(args, 5)
    args.rollout_batch_size, args.batch_timeout = 100, 60.0
    again, seconds = _timed(args, 5)
    assert again == first and seconds < 10


def test_a_leased_sample_has_the_trainers_field_names(args: SimpleNamespace, make_sample: MakeSample) -> None:
    turn = make_sample(reward=-1.0, finish_reason="length")
    args.rollout_batch_size = 1
    (sample,) = lease.lease_batch(args, 3)
    assert sample == {
        "index": 1,
        "group_index": 1,
        "rollout_id": 3,
        "session_id": "s",
        "prompt": turn.messages,
        "tokens": [5, 6, 7, 8, 9],
        "response": "4",
        "response_length": 2,
        "rollout_log_probs": [-0.25, -1 / 3],
        "loss_mask": [1, 1],
        "reward": {"score": -1.0},
        "version_spans": [(0, 0, 1), (1, 1, 2)],
        "temperature": 0.6,
        "status": "truncated",
        "metadata": {"turn_id": turn.id, "policy_id": "policy", "tools": None},
    }


@pytest.mark.every_database
def test_a_live_version_commits_the_batch(
    args: SimpleNamespace, make_sample: MakeSample, store: RolloutStore
) -> None:
    make_sample()
    args.rollout_batch_size = 1
    lease.lease_batch(args, 0)
    checkpoint = {"path": "/c", "parent": 0, "checksum": "ab", "restored": False}
    for _ in range(2):
        lease.on_weights_live(args, 0, 1, checkpoint)
    assert store.status.counts()["samples"] == {"trained": 1}
    assert store.versions.live() == 1


def test_idle_sessions_end_while_the_trainer_waits(
    args: SimpleNamespace,
    make_sample: MakeSample,
    store: RolloutStore,
    make_turn: Callable[..., NewTurn],
) -> None:
    make_sample(session_id="judged")
    store.turns.record(make_turn(session_id="left"))
    time.sleep(0.02)
    args.session_ttl = 0.01
    lease.lease_batch(args, 0)
    assert store.status.counts()["dropped"] == {"session_idle": 1}


def test_a_store_must_be_given(args: SimpleNamespace) -> None:
    args.rl_buffer_dir = args.rl_buffer_url = None
    with pytest.raises(StoreError, match="give --rl-buffer-dir or --rl-buffer-url"):
        lease.lease_batch(args, 0)


def test_samples_of_too_old_weights_are_dropped_and_counted(
    args: SimpleNamespace, make_sample: MakeSample, store: RolloutStore
) -> None:
    old = make_sample(version_spans=[(0, 0, 2)])
    spanning = make_sample(version_spans=[(0, 0, 1), (2, 1, 2)])
    store.versions.weights_live(0, 3, parent=2, restored=False, checkpoint_path=None, checksum=None)
    args.max_staleness, args.rollout_batch_size = 1, 1
    (sample,) = lease.lease_batch(args, 1)
    assert sample["metadata"]["turn_id"] == spanning.id
    assert store.status.counts()["dropped"] == {"stale": 1}
    dropped = store.samples.of_turn(old.id)
    assert dropped is not None and dropped.reason == "stale"


def test_stale_samples_are_kept_if_a_lower_weight_is_set(
    args: SimpleNamespace, make_sample: MakeSample, store: RolloutStore
) -> None:
    make_sample(version_spans=[(0, 0, 2)])
    store.versions.weights_live(0, 9, parent=8, restored=False, checkpoint_path=None, checksum=None)
    args.max_staleness, args.stale_weight, args.rollout_batch_size = 1, 0.5, 1
    assert len(lease.lease_batch(args, 1)) == 1


def test_an_evaluation_is_rejected(args: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="no evaluation set"):
        lease.generate_rollout(args, 0, evaluation=True)


@pytest.mark.parametrize(
    ("scores", "compared"),
    [
        ([1.0, 1.0, 1.0, -1.0], [0.5, 0.5, 0.5, -1.5]),
        ([1.0, 1.0], [0.0, 0.0]),
        ([1.0, 0.0, -1.0], [1.0, 0.0, -1.0]),  # 0 is not a score
        ([0.0, 1.0], [0.0, 1.0]),  # and one score cannot be compared
        ([], []),
    ],
)
def test_rewards_are_compared_with_those_of_their_batch(scores: list[float], compared: list[float]) -> None:
    samples = [Sample(tokens=[1, 2], response_length=1, reward={"score": score}) for score in scores]
    before, after = compare_in_batch(SimpleNamespace(reward_key="score"), samples)
    assert before == [{"score": score} for score in scores] and after == compared


def test_rewards_of_replayed_turns_are_compared_within_their_own_step() -> None:
    samples = [
        Sample(tokens=[1, 2], response_length=1, reward={"score": score}, companion=step)
        for score, step in [(1.0, 0), (-1.0, 0), (1.0, 1), (1.0, 1), (-1.0, 2)]
    ]
    _, after = compare_in_batch(SimpleNamespace(reward_key="score"), samples)
    assert after == [1.0, -1.0, 0.0, 0.0, -1.0]
