"""Tests trainers and engines on the same GPUs: the holder of the memory after each call."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from claw_base.run_folder.orders import VersionOrder, VersionOrders
from slime.ray.forgetting import PeopleToForget
from slime.ray.rollouts import PendingBatch
from slime.ray.run import Progress, TrainingRun
from slime.ray.train_actor import TrainerState
from slime.ray.versions import files
from slime.ray.versions.files import VersionFiles
from slime.ray.versions.in_flight import VersionInFlight, VersionState
from slime.ray.versions.publisher import Publisher
from slime.tracking import StepClock
from slime.weights.versions import WeightVersion


class Calls:
    """Replaces any part of a run: records `part.method` in one list."""

    def __init__(self, part: str, calls: list[str], **returned: Any) -> None:
        self.part, self.calls, self.returned = part, calls, returned

    def __getattr__(self, name: str) -> Any:
        def call(*args: object, **more: object) -> Any:
            self.calls.append(f"{self.part}.{name}")
            return self.returned.get(name)

        return call


def make_run(calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **flags: bool) -> TrainingRun:
    defaults = {"colocate": True, "offload_rollout": True, "offload_train": True, "ship_adapters": False}
    args = SimpleNamespace(
        **(defaults | flags), num_rollout=9, save_interval=5, update_weights_interval=1, keep_weights=3,
        keep_versions=0, train_adapters=None,
        keep_checkpoints=3, update_weight_transport="disk", custom_update_weight_post_write_path=None,
        use_tensorboard=False, run_dir=str(tmp_path), save=str(tmp_path), update_weight_disk_dir=str(tmp_path),
        save_hf=None, save_debug_rollout_data=None, rollout_backend="embedded", train_backend="fsdp",
    )  # fmt: skip
    monkeypatch.setattr(files, "load_hook", lambda *_: None)
    run: Any = TrainingRun.__new__(TrainingRun)
    run.args, run.specs, run.progress, run.clock = args, [], Progress(), StepClock()
    run.watcher, run.external = Calls("watcher", calls), Calls("external", calls, present=[])
    run.nodes = Calls("nodes", calls, present=[])
    run.rollouts, run.tracker = Calls("rollouts", calls), Calls("tracker", calls)
    run.tracker.display = Calls("display", calls)
    run.trainers = Calls("trainers", calls, load=TrainerState(4, 5, 4), export_weights="sum")
    published: Any = Publisher.__new__(Publisher)
    published.args, published.save_dir, published.home = args, tmp_path, tmp_path
    published.newest, published.live_parent = 5, 4
    published.files = VersionFiles(args, list)
    published.live = WeightVersion(5, str(tmp_path), "sum")
    published.external, published.own_engines = run.external, [Calls("engine", calls)]
    published.nodes = run.nodes
    published.gate_engines = []
    published.gate = SimpleNamespace(on=False, begin=lambda *_: None, history=SimpleNamespace(good=None))
    published.orders = VersionOrders(tmp_path)
    published.numbers, published.update = Calls("numbers", calls, next=6), Calls("update", calls)
    run.publisher = run.base = published
    run.people = PeopleToForget(args)
    return run


class BatchMaker:
    """Replaces a rollout manager: returns empty batches."""

    @property
    def generate(self) -> Any:
        return SimpleNamespace(remote=lambda rollout_id: ([], {}, None))


def version(rollout_id: int, trained: bool = False) -> VersionInFlight:
    """Returns a version whose batch is complete; `trained`: and trained."""
    batch = PendingBatch(rollout_id, BatchMaker())
    found = VersionInFlight(batch)
    found.state = VersionState.TRAINING if trained else VersionState.REQUESTED
    return found


def seen(calls: list[str]) -> list[str]:
    told = ("trainers.load", "trainers.export_weights", "trainers.sleep", "trainers.wake_up", "watcher.wait_ready",
            "engine.release_memory", "engine.resume_memory", "update.publish")  # fmt: skip
    return [call for call in calls if call in told]


def test_rollout_numbers_continue_after_a_rollback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run([], tmp_path, monkeypatch)
    assert run.go_live() == 5
    orders = run.publisher.orders
    orders.going_back(7)
    orders.finish(VersionOrder("1", "rollback", 4), None)
    assert run.go_live() == 8
    orders.going_back(6)
    orders.finish(VersionOrder("2", "pin", 4), 4)
    assert (orders.trained, orders.pinned) == (7, 4)


def test_engines_start_and_release_memory_before_a_trainer_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    make_run(calls, tmp_path, monkeypatch).go_live()
    assert seen(calls) == [
        "watcher.wait_ready", "engine.release_memory", "trainers.load", "trainers.export_weights", "trainers.sleep",
        "engine.resume_memory", "update.publish",
    ]  # fmt: skip


def test_a_trainer_that_stays_loaded_loads_after_its_engines_have_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    make_run(calls, tmp_path, monkeypatch, offload_rollout=False, offload_train=False).go_live()
    assert seen(calls) == ["watcher.wait_ready", "trainers.load", "trainers.export_weights", "update.publish"]


def test_on_separate_gpus_trainers_load_while_engines_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    alone = {"colocate": False, "offload_rollout": False, "offload_train": False}
    make_run(calls, tmp_path, monkeypatch, **alone).go_live()
    assert seen(calls)[:2] == ["trainers.load", "watcher.wait_ready"]


def test_trainers_export_and_offload_before_engines_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    make_run(calls, tmp_path, monkeypatch).publish(version(5))
    assert seen(calls) == [
        "trainers.export_weights", "trainers.sleep", "engine.resume_memory", "update.publish"
    ]  # fmt: skip


def test_engines_resume_even_without_an_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    run = make_run(calls, tmp_path, monkeypatch)
    run.args.update_weights_interval = 4
    run.publish(version(5))
    assert seen(calls) == ["trainers.sleep", "engine.resume_memory"]


@pytest.mark.parametrize(("over_files", "asked"), [(False, 1), (True, 0)])
def test_a_waiting_batch_is_formed_again_after_a_rollback(
    over_files: bool, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    run: Any = make_run(calls, tmp_path, monkeypatch)
    went_back = iter([False, True, False, False])
    monkeypatch.setattr("slime.ray.run.execute_order", lambda *_: next(went_back))
    run.runtime, run.held, run.progress.trained = run.watcher, lambda: None, 6
    run.rollouts = SimpleNamespace(
        repeats_samples=over_files, manager="manager", wait=lambda batch, look: look() or {"rollout": 1.0}
    )
    awaited: Any = version(7)
    awaited.batch = SimpleNamespace(rollout_id=7, ask=lambda manager: calls.append(f"asked {manager}"))
    run.wait(awaited)
    assert calls.count("asked manager") == asked
    assert awaited.metrics == {"rollout": 1.0}
