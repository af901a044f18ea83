"""Tests which files a driver saves when it is asked to stop, and when it does not wait for them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slime.errors import EngineError
from slime.processes.saving import grace_of
from slime.ray import stop
from slime.ray.rollouts import Rollouts
from slime.ray.run import Stopped
from slime.ray.stop import OrderlyStop
from slime.ray.train_group import TrainerDied
from slime.ray.versions.in_flight import VersionState
from slime.weights import checkpoints
from slime.weights.versions import WeightVersion
from tests.slime.ray.test_shared_gpus import Calls, make_run, seen, version
from tests.slime.ray.versions.test_publication import APART, Gate, Numbers, Update, refuse, until


class Trainers(Calls):
    """Records a saved checkpoint, and makes it the latest."""

    saved: list[tuple[Any, ...]]
    folder: Path

    def save(self, rollout_id: int, version: int, parent: int | None, *more: object, **named: object) -> None:
        self.calls.append("trainers.save")
        self.saved.append((rollout_id, version, parent))
        put_checkpoint(self.folder, rollout_id, version)


def put_checkpoint(save: Path, rollout_id: int, version: int) -> None:
    folder = checkpoints.folder_of(save, rollout_id)
    folder.mkdir()
    meta = {"rollout_id": rollout_id, "version": version, "global_step": 1}
    (folder / checkpoints.META).write_text(json.dumps(meta))
    checkpoints.make_latest(folder)


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def make(calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def make(**flags: bool) -> Any:
        run: Any = make_run(calls, tmp_path, monkeypatch, **flags)
        run.args.async_save, run.args.run_dir, run.run_dir = False, str(tmp_path), tmp_path
        run.args.stop_timeout, run.runtime = 900.0, run.watcher
        run.publisher.update, run.publisher.numbers = Update(calls), Numbers()
        run.publisher.update.go.set()
        run.trainers = Trainers("trainers", calls, export_weights="sum", train={"loss": 1.0})
        run.trainers.saved, run.trainers.folder = [], tmp_path
        put_checkpoint(tmp_path, 4, 5)
        run.progress.trained = 4
        return run

    return make


def test_a_version_that_went_live_since_the_last_checkpoint_is_saved_once(make: Callable[..., Any]) -> None:
    run = make(**APART)
    assert not run.unsaved()
    trained = version(5)
    run.train(trained)
    run.publish(trained, overlap=True)
    assert run.unsaved()
    run.save_now()
    run.save_now()
    assert run.trainers.saved == [(5, 6, 5)] and not run.unsaved()


def test_unpublished_progress_goes_live_and_is_saved(make: Callable[..., Any], calls: list[str]) -> None:
    run = make(**APART)
    run.args.update_weights_interval = 4
    trained = version(5)
    run.train(trained)
    run.publish(trained)
    assert run.in_flight.state is VersionState.HELD and "trainers.export_weights" not in calls
    run.save_now()
    assert run.trainers.saved == [(5, 6, 5)] and run.publisher.live.version == 6
    assert run.in_flight.state is VersionState.LIVE


def test_a_rejected_version_is_not_saved(make: Callable[..., Any], calls: list[str]) -> None:
    run = make(**APART)
    run.publisher.gate = Gate(calls)
    run.publisher.files.remember = lambda live: None
    run.publisher.update.go.clear()
    trained = version(5)
    run.train(trained)
    run.publish(trained, overlap=True)
    refuse(run.publisher.update)
    run.save_now()
    assert run.trainers.saved == [(5, 5, 4)], "the rollout is used up, the weights are the live ones"
    assert calls.index("trainers.go_back") < calls.index("trainers.save")


def test_a_restored_version_is_not_saved_again(make: Callable[..., Any]) -> None:
    run = make(**APART)
    run.progress.trained = 7
    assert run.unsaved()
    run.publisher.orders.going_back(7)
    run.save_now()
    assert not run.unsaved() and run.trainers.saved == []


def test_on_shared_gpus_an_offloaded_trainer_saves_from_cpu_memory(
    make: Callable[..., Any], calls: list[str]
) -> None:
    run = make()
    trained = version(5)
    run.train(trained)
    run.publish(trained)
    calls.clear()
    run.save_now()
    assert run.trainers.saved == [(5, 6, 5)] and "engine.release_memory" not in calls


def test_a_stop_saves_a_live_adapter_as_a_full_model_and_resumes_engines(
    make: Callable[..., Any], calls: list[str], tmp_path: Path
) -> None:
    run = make()
    (tmp_path / "adapter_config.json").touch()
    run.publisher.live = WeightVersion(6, str(tmp_path), "sum")
    run.progress.trained = 5
    run.save_now()
    assert seen(calls) == [
        "engine.release_memory", "trainers.wake_up", "trainers.export_weights", "trainers.sleep",
        "engine.resume_memory",
    ]  # fmt: skip
    assert run.trainers.saved == [(5, 6, 4)]


def test_a_stop_takes_effect_at_the_next_check_and_replaces_no_lost_trainer(
    make: Callable[..., Any],
) -> None:
    run = make(**APART)
    run.look_for_stop()
    run.stopping = True
    with pytest.raises(Stopped):
        run.check_processes()
    with pytest.raises(TrainerDied):
        run.recover(TrainerDied("it died"))


def test_an_evaluation_does_not_delay_a_stop(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Any = make(**APART)
    rollouts: Any = Rollouts.__new__(Rollouts)
    rollouts.args = SimpleNamespace(eval_timeout=0)
    rollouts.manager = SimpleNamespace(evaluate=SimpleNamespace(remote=lambda rollout_id: None))
    rollouts.heartbeat = SimpleNamespace(check=lambda: None)
    monkeypatch.setattr("slime.ray.rollouts.gather", lambda answer, what, limit, look: look())
    run.rollouts, run.args.eval_interval, run.stopping = rollouts, 1, True
    with pytest.raises(Stopped):
        run.evaluate_after(5)


class Ended(BaseException):
    """Replaces the exit of the process."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(status: int) -> None:
        raise Ended(status)

    monkeypatch.setattr(stop.os, "_exit", end)


def test_without_anything_to_save_a_driver_ends_at_once(make: Callable[..., Any], ended: None) -> None:
    with pytest.raises(Ended, match="143"):
        OrderlyStop(make(**APART)).signalled(signal.SIGTERM, None)


def test_a_second_signal_ends_a_saving_driver_but_a_duplicate_delivery_does_not(
    make: Callable[..., Any], ended: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OrderlyStop, "end_in_time", lambda stopper: None)
    run = make(**APART)
    run.progress.trained = 5
    stopper = OrderlyStop(run)
    stopper.signalled(signal.SIGINT, None)
    assert run.stopping and grace_of(tmp_path, os.getpid()) == 905
    stopper.signalled(signal.SIGINT, None)
    stopper.signalled(signal.SIGTERM, None)
    stopper.began -= 2 * stop.ECHO
    stopper.signalled(signal.SIGTERM, None)
    with pytest.raises(Ended, match="130"):
        stopper.signalled(signal.SIGINT, None)


def test_a_stop_succeeds_with_a_full_disk(
    make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OrderlyStop, "end_in_time", lambda stopper: None)
    run = make(**APART)
    run.progress.trained, run.run_dir = 5, tmp_path / "gone"
    OrderlyStop(run).signalled(signal.SIGTERM, None)
    assert run.stopping


def test_a_checkpoint_that_takes_too_long_is_abandoned(
    make: Callable[..., Any], ended: None, caplog: pytest.LogCaptureFixture
) -> None:
    run = make(**APART)
    run.args.stop_timeout = 0.05
    stopper = OrderlyStop(run)
    stopper.number = int(signal.SIGTERM)
    began = time.monotonic()
    with caplog.at_level("INFO"), pytest.raises(Ended, match="143"):
        stopper.end_in_time()
    assert time.monotonic() - began < 5
    assert "stopped without a checkpoint: it was not written within 0.05 s" in caplog.text


def test_a_stop_during_a_failed_publication_writes_no_checkpoint(
    make: Callable[..., Any], ended: None, caplog: pytest.LogCaptureFixture
) -> None:
    run = make(**APART)
    run.publisher.update.go.clear()
    trained = version(5)
    run.train(trained)
    run.publish(trained, overlap=True)
    run.publisher.update.fails = True
    run.publisher.update.go.set()
    until(lambda: not run.busy)
    stopper = OrderlyStop(run)
    stopper.number = int(signal.SIGTERM)

    def train(run: Any, rollouts: int) -> None:
        raise Stopped

    with pytest.raises(Ended, match="143"):
        stopper.guard(train, 9)
    assert "stopped without a checkpoint: an engine refused it" in caplog.text and run.trainers.saved == []


def test_an_error_without_a_stop_is_the_drivers_own(make: Callable[..., Any]) -> None:
    def train(run: Any, rollouts: int) -> None:
        raise EngineError("away")

    with pytest.raises(EngineError):
        OrderlyStop(make(**APART)).guard(train, 9)
