"""Tests the continuous producer: no group is older than allowed, none is discarded, and no wait is unnecessary."""

from __future__ import annotations

import heapq
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.errors import EngineError
from slime.rollout.data_source import RolloutDataSourceWithBuffer
from slime.rollout.fully_async_rollout import generate_rollout_fully_async, may_start, missing
from slime.types import flatten
from slime.weights.versions import WeightVersion, write_live
from tests.fakes.fixtures import ParseArgs, Rows
from tests.fakes.rollout_engine import FakeEngine


def simulate(
    batch: int, bound: int, ahead: int, rollouts: int, width: int, chance: random.Random
) -> list[int]:
    """Returns the ages, in rollouts, of all groups that are handed out, with durations from a long-tailed
    distribution.

    `ahead`: number of batches by which the trainer may lag: 0 in turns, 1 as in `train_async.py`.
    """
    now, trained, open_groups, running, ready, ages = 0.0, 0, 0, [], [], []
    train_ends: list[float] = []
    for rollout in range(rollouts):
        while True:
            while train_ends and train_ends[0] <= now:
                trained, _ = trained + 1, train_ends.pop(0)
            while len(running) < width and may_start(open_groups, trained, rollout, batch, bound):
                heapq.heappush(running, (now + chance.paretovariate(1.1), open_groups, trained))
                open_groups += 1
            due = [start + bound for *_, start in running] + [start + bound for start in ready]
            full = len(ready) >= batch and not missing(
                due, [start + bound for start in ready], rollout, batch
            )
            if full and len(train_ends) <= ahead:
                break
            times = [running[0][0]] if running else []
            now = min(times + train_ends[:1])  # raises if no event is left: a deadlock
            while running and running[0][0] <= now:
                ready.append(heapq.heappop(running)[2])
        ready.sort()
        ages += [rollout - start for start in ready[:batch]]
        ready, open_groups = ready[batch:], open_groups - batch
        train_ends.append(max([now, *train_ends]) + chance.uniform(0.1, 3.0))
    return ages


@settings(max_examples=150, deadline=None)
@given(
    batch=st.integers(1, 5),
    bound=st.integers(0, 4),
    ahead=st.integers(0, 1),
    width=st.integers(1, 20),
    seed=st.integers(0, 10**6),
)
def test_no_schedule_exceeds_the_staleness_bound_or_deadlocks(
    batch: int, bound: int, ahead: int, width: int, seed: int
) -> None:
    ages = simulate(batch, bound, min(ahead, bound), 25, width, random.Random(seed))
    assert len(ages) == 25 * batch
    assert max(ages) <= bound
    assert min(ages) >= 0


class Trainer:
    """Reports live weights as a run does, after `seconds` of training."""

    def __init__(self, run_dir: str, engine: FakeEngine) -> None:
        self.run_dir, self.engine = Path(run_dir), engine
        self.live(-1)

    def live(self, rollout_id: int) -> None:
        version = WeightVersion(rollout_id + 1, "/weights", "sum", rollout_id)
        write_live(self.run_dir, version)
        self.engine.version = version.version


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_the_versions_in_a_batch_are_no_older_than_allowed(
    bound: int, make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    chance = random.Random(3)
    fake.seconds_per_token = 0.002
    fake.length = lambda request: min(40, int(4 * chance.paretovariate(1.0)))
    words = ["--max-staleness", str(bound), "--rollout-batch-size", "4", "--rollout-max-response-len", "50"]
    args = make_args(rows, *words, "--over-sampling-batch-size", "8")
    source, trainer = RolloutDataSourceWithBuffer(args), Trainer(args.run_dir, fake)
    handed_out: list[Any] = []
    for rollout_id in range(6):
        output = generate_rollout_fully_async(args, rollout_id, source)
        samples = list(flatten(output.samples))  # type: ignore[union-attr]
        assert len(samples) == 4
        assert all(rollout_id - min(sample.versions) <= bound for sample in samples)
        handed_out += [sample.group_index for sample in samples]
        trainer.live(rollout_id)
    assert len(set(handed_out)) == len(handed_out)
    assert max(handed_out) < 6 * 4 + (bound + 1) * 4, "none is dropped for its age"


def test_a_batch_is_ready_at_once_if_training_takes_longer(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    fake.seconds_per_token = 0.25
    args = make_args(rows, "--max-staleness", "1")
    source, trainer = RolloutDataSourceWithBuffer(args), Trainer(args.run_dir, fake)
    began = time.monotonic()
    generate_rollout_fully_async(args, 0, source)
    generating = time.monotonic() - began
    time.sleep(2 * generating)
    began = time.monotonic()
    generate_rollout_fully_async(args, 1, source)
    assert time.monotonic() - began < generating / 2
    trainer.live(0)


def test_groups_wait_for_new_weights_and_log_it_if_none_come(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    args = make_args(rows, "--max-staleness", "0", "--rollout-stall-timeout", "0.5")
    source = RolloutDataSourceWithBuffer(args)
    Trainer(args.run_dir, fake)
    generate_rollout_fully_async(args, 0, source)
    asked = len(fake.requests)
    with pytest.raises(EngineError, match=r"the weights are of 0 trained rollouts \(--max-staleness 0\)"):
        generate_rollout_fully_async(args, 1, source)
    assert len(fake.requests) == asked == 4


def test_groups_in_flight_are_issued_again_after_a_restart(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    fake.seconds_per_token = 0.005
    args = make_args(rows, "--max-staleness", "2")
    source = RolloutDataSourceWithBuffer(args)
    output = generate_rollout_fully_async(args, 0, source)
    taken = [sample.group_index for sample in flatten(output.samples)]  # type: ignore[union-attr]
    source.settle(0, output.samples)  # type: ignore[union-attr]
    source.save(0)
    again = RolloutDataSourceWithBuffer(args)
    again.load(0)
    groups = [group[0].group_index for group in again.get_samples(12)]
    assert sorted(taken + groups) == list(range(16))
