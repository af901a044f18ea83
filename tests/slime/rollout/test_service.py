"""Tests the rollout manager's output for the trainer: samples, metrics, and a state to resume from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from slime.errors import DataError
from slime.rollout.service import RolloutService
from slime.types import RolloutFnTrainOutput, Sample
from tests.fakes.fixtures import ParseArgs, Rows
from tests.fakes.rollout_engine import FakeEngine

if TYPE_CHECKING:
    from slime.arguments import Arguments
    from slime.rollout.data_source import DataSource


ServiceOf = Callable[..., RolloutService]

OUTPUT: dict[str, Any] = {}


def sample(reward: Any, length: int = 2, group: int | None = 0) -> Sample:
    return Sample(
        group_index=group, tokens=[5] * (length + 1), response_length=length, reward=reward, response="x" * length,
        version_spans=[(4, 0, length)],
    )  # fmt: skip


def given(args: Arguments, rollout_id: int, data_source: DataSource, evaluation: bool = False) -> Any:
    return rollout_output()


def rollout_output() -> Any:
    from slime.plugins import load_attr

    found = load_attr(f"{__file__}:OUTPUT")["output"]
    return found() if callable(found) else found


@pytest.fixture
def service_of(make_args: ParseArgs) -> ServiceOf:
    from slime.plugins import load_attr

    def make(output: Any, *words: str) -> RolloutService:
        path = f"{__file__}:given"
        service = RolloutService(make_args(None, "--rollout-function-path", path, *words))
        load_attr(f"{__file__}:OUTPUT")["output"] = output
        return service

    return make


def test_nested_groups_become_one_batch_with_metrics(service_of: ServiceOf) -> None:
    output = RolloutFnTrainOutput([[sample(1.0)], [[sample(-1.0, 4)]]], {"rollout/mine": 3.0})  # type: ignore[list-item]
    samples, metrics = service_of(output).generate(0)
    assert [s.reward for s in samples] == [1.0, -1.0]
    assert metrics["rollout/mine"] == 3.0
    assert metrics["rollout/reward_mean"] == 0.0
    assert metrics["rollout/response_len/mean"] == metrics["rollout/response_len/median"] == 3.0
    assert metrics["perf/rollout_time"] > 0


def test_a_rollout_function_may_return_rows_that_are_single_groups(service_of: ServiceOf) -> None:
    row = {"tokens": [5, 6, 7], "response_length": 2, "reward": 1.0, "response": "xx"}
    rows = [row, row | {"reward": -1.0}]
    service = service_of({"samples": rows, "metrics": {"rollout/mine": 3.0}})
    samples, metrics = service.generate(0)
    assert [s.reward for s in samples] == [1.0, -1.0] and metrics["rollout/mine"] == 3.0
    assert metrics["rollout/reward_mean"] == 0.0
    with pytest.raises(DataError, match="colour"):
        service_of({"samples": [row | {"colour": "red"}]}).generate(0)


def test_metrics_count_groups_without_signal_and_stale_samples(service_of: ServiceOf) -> None:
    groups = [[sample(1.0, group=i), sample(float(i > 1), group=i)] for i in range(3)]
    groups[0][0].version_spans = [(1, 0, 1), (3, 1, 2)]
    _, metrics = service_of(groups, "--log-passrate").generate(0)
    assert metrics["rollout/zero_std/count"] == metrics["rollout/zero_std/count_1.0"] == 1
    assert metrics["rollout/staleness/max"] == 3
    assert metrics["rollout/spanning_ratio"] == pytest.approx(1 / 6)
    assert metrics["passrate/pass@2"] == 1.0
    assert metrics["passrate/pass@1"] == pytest.approx(4 / 6)


def test_a_sample_without_a_usable_reward_does_not_spoil_the_metrics(service_of: ServiceOf) -> None:
    _, metrics = service_of([sample(1.0), sample(float("nan"))]).generate(0)
    assert metrics["rollout/reward_mean"] == 1.0


def test_an_empty_batch_is_an_error(service_of: ServiceOf) -> None:
    with pytest.raises(DataError, match="no samples"):
        service_of([[]]).generate(0)


def test_a_corrupt_sample_is_reported(service_of: ServiceOf) -> None:
    bad = sample(1.0)
    bad.loss_mask = [1]
    with pytest.raises(DataError, match="loss_mask has 1 entries for 2 response tokens"):
        service_of([bad]).generate(0)


def spoils(args: Arguments, samples: list[Sample]) -> tuple[list[float], list[float]]:
    samples[0].rollout_log_probs = [-0.5]
    return [1.0], [1.0]


def test_a_sample_corrupted_by_a_reward_hook_is_reported(service_of: ServiceOf) -> None:
    words = ["--custom-reward-post-process-path", f"{__file__}:spoils"]
    with pytest.raises(DataError, match="rollout_log_probs has 1 entries for 2 response tokens"):
        service_of([sample(1.0)], *words).generate(0)


def mine(
    rollout_id: int,
    args: Arguments,
    samples: list[Sample],
    extra_metrics: dict[str, float],
    rollout_time: float,
) -> bool:
    return len(samples) == 2


def test_a_log_function_may_replace_the_metrics(service_of: ServiceOf) -> None:
    words = ["--custom-rollout-log-function-path", f"{__file__}:mine"]
    assert service_of([sample(1.0)] * 2, *words).generate(0)[1] == {}
    assert service_of([sample(1.0)] * 3, *words).generate(0)[1] != {}


def test_control_calls_are_answered_while_a_batch_is_generated(service_of: ServiceOf) -> None:
    release = threading.Event()
    service = service_of(lambda: release.wait(10) and [sample(1.0)])
    thread = threading.Thread(target=service.generate, args=(3,))
    thread.start()
    time.sleep(0.05)
    began = time.monotonic()
    waiting = service.status()["waiting"]
    service.save(2)
    assert time.monotonic() - began < 0.5
    assert list(waiting) == ["rollout 3"]
    release.set()
    thread.join(10)
    assert service.status()["waiting"] == {}


def test_a_run_killed_after_a_batch_continues_with_the_next_prompts(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    args = make_args(rows, "--rollout-shuffle")
    service = RolloutService(args)
    batches = []
    for rollout_id in range(3):
        batches.append(service.generate(rollout_id)[0])
        service.save(rollout_id)
    for start in range(3):
        resumed = RolloutService(args)  # without a state it finds its position itself
        again = [resumed.generate(rollout_id)[0] for rollout_id in range(start, 3)]
        assert [[s.to_dict() for s in batch] for batch in again] == [
            [s.to_dict() for s in batch] for batch in batches[start:]
        ]
