"""Tests that a version goes live while the next step trains: which steps overlap, and which wait for others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from claw_base.run_folder.orders import place
from slime.engines.protocol import EngineControlError, EngineInfo
from slime.errors import EngineError
from slime.ray import run as ray_run
from slime.ray.run import TrainingRun
from slime.ray.train_group import TrainerDied
from slime.ray.versions.in_flight import VersionState
from slime.rented.versions import RentedWeights, write_version
from slime.weights import checkpoints
from slime.weights.update import Candidate, CandidateRejected
from slime.weights.versions import WeightVersion, write_live
from tests.slime.ray.test_shared_gpus import make_run, version

APART = {"colocate": False, "offload_rollout": False, "offload_train": False}


class Update:
    """Replaces the engines: each publication waits until it is released, or fails."""

    def __init__(self, calls: list[str]) -> None:
        self.calls, self.go, self.fails = calls, threading.Event(), False
        self.engines: list[Any] = []
        self.error: Exception = EngineError("an engine refused it")

    def publish(self, candidate: Candidate, persist: Callable[[], None], *more: object) -> None:
        self.calls.append(f"version {candidate.weights.version} of rollout {candidate.rollout_id} begins")
        persist()
        assert self.go.wait(20)
        if self.fails:
            raise self.error
        self.calls.append(f"version {candidate.weights.version} is live, from {candidate.parent}")


class Numbers:
    last = 5

    def next(self, *seen: int) -> int:
        self.last += 1
        return self.last


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def run(calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    run: Any = make_run(calls, tmp_path, monkeypatch, **APART)
    run.publisher.update, run.publisher.numbers = Update(calls), Numbers()
    return run


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def told(calls: list[str]) -> list[str]:
    return [call for call in calls if call.startswith(("version", "trainers.export", "trainers.save"))]


def test_the_trainer_continues_while_its_weights_go_live(run: Any, calls: list[str]) -> None:
    published = version(5)
    run.publish(published, overlap=True)
    assert run.busy and "tracker.log" not in calls
    run.publisher.update.go.set()
    run.settle()
    assert told(calls) == [
        "trainers.export_weights",
        "version 6 of rollout 5 begins",
        "version 6 is live, from 5",
    ]
    assert calls.count("tracker.log") == 1 and published.metrics["weights/version"] == 6


def test_the_next_version_descends_from_the_one_being_published(run: Any, calls: list[str]) -> None:
    run.publish(version(5), overlap=True)
    second = threading.Thread(target=run.publish, args=(version(6),))
    second.start()
    time.sleep(0.1)
    assert told(calls).count("trainers.export_weights") == 1, (
        "nothing leaves the trainer while one is on its way"
    )
    run.publisher.update.go.set()
    second.join(20)
    assert told(calls)[2:] == [
        "version 6 is live, from 5", "trainers.export_weights", "version 7 of rollout 6 begins",
        "version 7 is live, from 6",
    ]  # fmt: skip
    assert calls.count("tracker.log") == 2


def test_a_checkpoint_is_complete_before_engines_load_its_weights(run: Any, calls: list[str]) -> None:
    run.publish(version(4), overlap=True)
    until(lambda: len(told(calls)) == 3)
    assert told(calls) == ["trainers.export_weights", "trainers.save", "version 6 of rollout 4 begins"]
    run.publisher.update.go.set()
    run.settle()


def test_a_version_that_fails_to_go_live_ends_the_run_at_the_next_check(run: Any, calls: list[str]) -> None:
    run.runtime = run.watcher
    run.publish(version(5), overlap=True)
    run.publisher.update.fails = True
    run.check_servers()
    run.publisher.update.go.set()
    until(lambda: not run.busy)
    with pytest.raises(EngineError, match="refused"):
        run.check_servers()
    assert "tracker.log" not in calls and run.publisher.live.version == 5


def test_a_signal_logs_the_row_of_the_live_version_only(run: Any, calls: list[str]) -> None:
    run.log_at_end()
    run.publish(version(5), overlap=True)
    run.log_at_end()
    assert "tracker.expect" in calls and "tracker.end_now" not in calls
    run.publisher.update.go.set()
    until(lambda: not run.busy)
    run.log_at_end()
    assert calls.count("tracker.end_now") == 1
    run.settle()
    run.log_at_end()
    assert calls.count("tracker.end_now") == 1


def test_a_signal_logs_no_row_of_a_failed_version(run: Any, calls: list[str]) -> None:
    run.publish(version(5), overlap=True)
    run.publisher.update.fails = True
    run.publisher.update.go.set()
    with pytest.raises(EngineError, match="refused"):
        run.settle()
    run.log_at_end()
    assert run.in_flight.state is VersionState.FAILED and "tracker.end_now" not in calls


def test_a_version_passes_its_publication_states_in_order(run: Any, calls: list[str]) -> None:
    run.trainers.returned["train"] = {"loss": 1.0}
    found = version(5)
    assert found.state is VersionState.REQUESTED
    run.train(found)
    assert found.state is VersionState.TRAINING
    run.publish(found, overlap=True)
    assert found.state is VersionState.EXAMINING and found.busy
    run.publisher.update.go.set()
    assert run.settle() is False
    assert found.state is VersionState.LIVE and found.settled
    assert found.batch.samples is None, "a version that is published does not hold its samples in memory"


def test_an_order_waits_until_the_version_in_flight_is_settled(
    run: Any, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.runtime = run.watcher
    monkeypatch.setattr(ray_run, "execute_order", lambda *_: calls.append("obeyed"))
    monkeypatch.setattr(run, "check_servers", lambda: None)
    run.publish(version(5), overlap=True)
    run.publisher.update.go.set()
    until(lambda: not run.busy)
    run.check_processes()
    assert "obeyed" not in calls, "the gate has neither accepted nor undone it"
    run.settle()
    run.check_processes()
    assert calls.count("obeyed") == 1


@pytest.mark.parametrize("act", ["finish", "evaluate_after", "replace_trainer"])
def test_operations_on_the_live_weights_wait_for_the_publication(
    act: str, run: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run.args.eval_interval = 1
    run.runtime = run.budget = run.placement = run.watcher
    monkeypatch.setattr("slime.ray.run.TrainGroup", lambda *_: run.trainers)
    monkeypatch.setattr(ray_run, "evaluate", lambda *_: calls.append("evaluated"))
    run.publish(version(5), overlap=True)
    words: dict[str, tuple[Any, ...]] = {"evaluate_after": (5,), "replace_trainer": (TrainerDied("it died"),)}
    acting = threading.Thread(target=getattr(TrainingRun, act), args=(run, *words.get(act, ())))
    acting.start()
    time.sleep(0.1)
    assert not {"trainers.finish_save", "evaluated", "trainers.kill"} & set(calls)
    run.publisher.update.go.set()
    acting.join(20)
    after = calls[calls.index("version 6 is live, from 5") :]
    assert {"trainers.finish_save", "evaluated", "trainers.kill"} & set(after)


class Gate:
    """Accepts every candidate; records its result. `rate`: factor of the learning rate."""

    on, rate = True, 1.0

    def __init__(self, calls: list[str]) -> None:
        self.calls, self.answers = calls, threading.Event()
        self.answers.set()
        self.wrong: CandidateRejected | None = None
        self.history = SimpleNamespace(good=None)

    def measure(self, *_: object) -> dict[str, float]:
        self.calls.append("examined")
        return {"change": 0.5}

    def let_answer(
        self, candidate: Candidate, live: WeightVersion, engines: Any, found: dict[str, float]
    ) -> dict[str, float]:
        """Waits until `answers` is set."""
        assert self.answers.wait(20)
        self.calls.append("answered")
        if self.wrong is not None:
            raise self.wrong
        return found | {"answers": 4.0}

    def accept(self, trainers: Any, found: dict[str, float]) -> None:
        trainers.keep_state()

    def reject(self, trainers: Any, candidate: Candidate, rejection: Exception) -> None:
        self.calls.append(f"version {candidate.weights.version} is rejected: {rejection}")
        trainers.go_back()

    def scale(self) -> float:
        return self.rate


@pytest.fixture
def examined(run: Any, calls: list[str]) -> Any:
    run.publisher.gate = Gate(calls)
    run.publisher.files.remember = lambda live: None
    run.args.async_save = False
    run.trainers.returned["train"] = {"loss": 1.0}
    return run


def examination(calls: list[str]) -> list[str]:
    kinds = ("version", "examined", "answered", "trainers.train", "trainers.note", "trainers.keep",
             "trainers.go_back", "trainers.save", "in force")  # fmt: skip
    return [call for call in calls if call.startswith(kinds) and not call.endswith("begins")]


def test_the_trainer_continues_while_engines_load_an_accepted_update(examined: Any, calls: list[str]) -> None:
    first = version(5)
    examined.publish(first, overlap=True)
    examined.train(version(6))
    until(lambda: "version 6 of rollout 5 begins" in calls)
    assert examined.busy, "the next batch was trained before the version was live"
    examined.publisher.update.go.set()
    assert examined.settle() is False
    assert examination(calls)[:2] == ["examined", "trainers.note_state"]
    assert examination(calls)[-2:] == ["version 6 is live, from 5", "trainers.keep_state"]
    assert first.metrics["gate/change"] == 0.5 and first.metrics["weights/version"] == 6
    assert calls.count("trainers.train") == 1 and "trainers.go_back" not in calls


def test_a_step_shortened_by_the_gate_is_written_again_before_checkpoint_and_engines(
    examined: Any, calls: list[str]
) -> None:
    gate = examined.publisher.gate

    def measure(
        trainers: Any, candidate: Candidate, live: WeightVersion, write_again: Callable[[], None]
    ) -> dict[str, float]:
        trainers.shrink(0.5)
        trainers.returned["export_weights"] = "sum of the shorter step"
        write_again()
        return {"step_share": 0.5}

    gate.measure = measure
    examined.publisher.update.go.set()
    found = version(5)
    examined.publish(found)
    assert [call for call in calls if call in ("trainers.export_weights", "trainers.shrink", "trainers.note_state")] == [
        "trainers.export_weights", "trainers.shrink", "trainers.export_weights", "trainers.note_state"
    ]  # fmt: skip
    live = examined.publisher.live
    assert (live.version, live.checksum) == (6, "sum of the shorter step")
    assert found.metrics["gate/step_share"] == 0.5


def refuse(update: Any) -> None:
    update.fails, update.error = True, EngineControlError("no such shard", 400)
    update.go.set()


def test_a_batch_trained_on_a_version_rejected_by_engines_is_retrained_on_the_live_one(
    examined: Any, calls: list[str]
) -> None:
    first = version(5)
    examined.publish(first, overlap=True)
    following = version(6)
    examined.train(following)
    refuse(examined.publisher.update)
    until(lambda: not examined.busy)
    examined.publisher.update.fails = False
    examined.publish(following)
    assert [call for call in examination(calls) if call != "answered"] == [
        "examined", "trainers.note_state", "trainers.train", "version 6 is rejected: no such shard",
        "trainers.go_back", "trainers.train", "examined", "trainers.note_state", "version 7 is live, from 5",
        "trainers.keep_state",
    ]  # fmt: skip
    assert examined.publisher.live.version == 7 and examined.publisher.live_parent == 5
    assert (first.state, following.state) == (VersionState.REJECTED, VersionState.LIVE)


def test_a_version_rejected_while_waiting_for_a_batch_repeats_no_training(
    examined: Any, calls: list[str]
) -> None:
    examined.runtime = examined.watcher
    examined.publish(version(5), overlap=True)
    refuse(examined.publisher.update)
    until(lambda: not examined.busy)
    examined.check_servers()
    examined.publisher.update.fails = False
    following = version(6)
    examined.train(following)
    examined.publish(following)
    assert calls.count("trainers.go_back") == calls.count("trainers.train") == 1


def held_back(run: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checkpoints, "activate_checkpoint", lambda folder: calls.append(f"in force: {folder.name}")
    )


def test_the_next_batch_trains_during_the_answer_check_which_validates_the_checkpoint(
    examined: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held_back(examined, calls, monkeypatch)
    gate = examined.publisher.gate
    gate.answers.clear()
    examined.publisher.update.go.set()
    first = version(4)
    examined.publish(first, overlap=True)
    examined.train(version(5))
    assert "answered" not in calls
    waiting = threading.Timer(0.2, gate.answers.set)
    waiting.start()
    examined.settle()
    assert examination(calls) == [
        "examined", "trainers.note_state", "trainers.save", "trainers.train", "answered", "in force: checkpoint-5",
        "version 6 is live, from 5", "trainers.keep_state",
    ]  # fmt: skip
    assert first.metrics["gate/answers"] == 4 and first.metrics["gate/held"] >= 0.1, (
        "the time that somebody waited for answers"
    )


def test_a_rejected_candidate_has_no_valid_checkpoint_and_its_next_batch_is_retrained(
    examined: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held_back(examined, calls, monkeypatch)
    gate = examined.publisher.gate
    gate.wrong = CandidateRejected("it is wrong", "answers")
    examined.publisher.update.go.set()
    examined.publish(version(4), overlap=True)
    until(lambda: not examined.busy)
    following = version(5)
    examined.train(following)
    gate.wrong = None
    examined.publish(following)
    assert examination(calls)[2:] == [
        "trainers.save", "answered", "trainers.train", "version 6 is rejected: it is wrong", "trainers.go_back",
        "trainers.save", "trainers.train", "examined", "trainers.note_state", "answered",
        "version 7 is live, from 5", "trainers.keep_state",
    ]  # fmt: skip


def test_a_batch_after_a_candidate_ended_by_an_order_is_not_trained_again_first(
    examined: Any, calls: list[str], tmp_path: Path
) -> None:
    gate = examined.publisher.gate
    gate.wrong = CandidateRejected("given up for an order", "order")
    examined.publish(version(5), overlap=True)
    until(lambda: not examined.busy)
    following = version(6)
    examined.train(following)
    place(tmp_path, "rollback", 5)
    examined.publish(following)
    assert calls.count("trainers.train") == 1 and calls.count("trainers.go_back") == 2


@pytest.mark.parametrize(
    ("rollout_id", "rate", "flag"),
    [(5, 0.5, ""), (4, 1.0, "async_save"), (8, 1.0, ""), (5, 1.0, "colocate")],
)
def test_the_trainer_waits_for_the_live_version_with_a_lower_rate_shared_gpus_or_at_the_end(
    rollout_id: int, rate: float, flag: str, examined: Any, calls: list[str]
) -> None:
    examined.publisher.gate.rate = rate
    if flag:
        setattr(examined.args, flag, True)
    publishing = threading.Thread(target=examined.publish, args=(version(rollout_id), True))
    publishing.start()
    time.sleep(0.1)
    assert publishing.is_alive() and "trainers.note_state" not in calls
    examined.publisher.update.go.set()
    publishing.join(20)
    assert examination(calls)[-1] == "trainers.keep_state" and not examined.busy


def test_a_crashed_trainer_is_replaced_in_any_publication_state(
    examined: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    examined.runtime = examined.budget = examined.placement = examined.watcher
    monkeypatch.setattr("slime.ray.run.TrainGroup", lambda *_: examined.trainers)

    def dead() -> None:
        raise TrainerDied("it died")

    examined.publish(version(5), overlap=True)
    examined.publisher.update.go.set()
    examined.trainers.keep_state = dead
    examined.replace_trainer(TrainerDied("it died"))
    assert "trainers.kill" in calls and calls.count("tracker.log") == 1


@pytest.mark.parametrize(("kept", "exports"), [(True, 0), (False, 1)])
def test_weights_lost_by_a_service_are_saved_there_again_at_a_trainers_start(
    kept: bool, exports: int, run: Any, calls: list[str], tmp_path: Path
) -> None:
    checksum = write_version(tmp_path / "v000005", RentedWeights("some/model", "tinker://model_1/v000005"))
    write_live(tmp_path, WeightVersion(5, str(tmp_path / "v000005"), checksum))
    run.trainers.returned["keeps"] = kept
    found = run.publisher.files.weights_of(run.trainers, 5)
    assert found.version == 5
    assert calls.count("trainers.export_weights") == exports


def test_a_trainer_restarts_if_a_service_has_lost_the_live_weights(run: Any) -> None:
    run.args.rollout_backend, run.runtime, run.progress.trained = "rented", run.watcher, 5
    [engine] = run.publisher.own_engines
    engine.returned["info"] = EngineInfo(5, "xxh3:1", "", None)
    run.publisher.check_kept()
    engine.returned["info"] = EngineInfo(5, "xxh3:1", "", None, forgotten=True)
    with pytest.raises(TrainerDied, match="lost version 5"):
        run.check_processes()
