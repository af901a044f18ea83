"""Tests the update transaction over engines that fail at each point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slime.errors import ConfigError, EngineError
from slime.weights.update import Candidate, CandidateRejected, WeightUpdate
from slime.weights.versions import (
    VersionNumbers,
    WeightVersion,
    artifact_folder,
    claim_folder,
    clear_missing_live,
    prune,
    read_live,
    write_live,
)

ZERO = WeightVersion(0, "/weights/v0", "sum-0")
ONE = WeightVersion(1, "/weights/v1", "sum-1")
CANDIDATE = Candidate(ONE, rollout_id=0, parent=0)


@dataclass
class FakeEngine:
    """Stores weights as the real one does; `fails[stage]` is the number of failures of that call before it
    succeeds."""

    url: str = "http://engine"
    fails: dict[str, int] = field(default_factory=dict)
    version: int = 0
    checksum: str = "sum-0"
    prepared: dict[int, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    on_call: Callable[[str], None] = lambda stage: None

    def call(self, stage: str) -> None:
        self.calls.append(stage)
        self.on_call(stage)
        if self.fails.get(stage, 0) > 0:
            self.fails[stage] -= 1
            raise EngineError(f"{stage} failed")

    def prepare(self, path: str, version: int) -> str:
        self.call("prepare")
        self.prepared[version] = path.replace("/weights/v", "sum-")
        return self.prepared[version]

    def switch(self, version: int) -> None:
        self.call("switch")
        if version not in self.prepared:
            raise EngineError(f"version {version} is not prepared")
        self.version, self.checksum = version, self.prepared.pop(version)

    def discard(self) -> None:
        self.call("discard")
        self.prepared.clear()

    def info(self) -> FakeEngine:
        if self.fails.get("info", 0) > 0:
            self.fails["info"] -= 1
            raise EngineError("away")
        return self

    def restart(self, weights: WeightVersion) -> None:
        self.prepared.clear()
        self.version, self.checksum = weights.version, weights.checksum


class Run:
    def __init__(self, run_dir: Path, engines: list[FakeEngine], **options: object) -> None:
        write_live(run_dir, ZERO)
        self.run_dir, self.engines = run_dir, engines
        self.announced: list[int] = []
        options = {"patience": 0.5, "retry_interval": 0.01, **options}
        self.update = WeightUpdate(
            engines, run_dir, lambda c: self.announced.append(c.weights.version), **options
        )  # type: ignore[arg-type]

    def versions(self) -> list[int]:
        return [engine.version for engine in self.engines]


def test_all_engines_go_live_and_only_then_it_is_announced(tmp_path: Path) -> None:
    run = Run(tmp_path, [FakeEngine(), FakeEngine()])
    persisted: list[list[int]] = []
    run.update.publish(CANDIDATE, persist=lambda: persisted.append(run.versions()))
    assert persisted == [[0, 0]], "artifact and checkpoint are durable before any engine switches"
    assert run.versions() == [1, 1]
    assert read_live(tmp_path) == ONE
    assert run.announced == [1]


@pytest.mark.parametrize("stage", ["prepare", "switch"])
def test_an_engine_that_fails_once_is_retried(tmp_path: Path, stage: str) -> None:
    run = Run(tmp_path, [FakeEngine(fails={stage: 1}), FakeEngine()])
    run.update.publish(CANDIDATE)
    assert run.versions() == [1, 1] and run.announced == [1]


def test_an_engine_that_cannot_prepare_leaves_the_old_version_live_everywhere(tmp_path: Path) -> None:
    run = Run(tmp_path, [FakeEngine(fails={"prepare": 99}), FakeEngine()])
    with pytest.raises(EngineError, match="prepare failed"):
        run.update.publish(CANDIDATE)
    assert run.versions() == [0, 0] and read_live(tmp_path) == ZERO and run.announced == []
    assert run.engines[1].prepared == {}, "prepared weights are discarded"


def test_an_engine_that_loads_wrong_weights_is_not_retried(tmp_path: Path) -> None:
    engine = FakeEngine()
    run = Run(tmp_path, [engine])
    with pytest.raises(EngineError, match="checksum sum-1, the trainer wrote other"):
        run.update.publish(Candidate(WeightVersion(1, "/weights/v1", "other"), 0, 0))
    assert engine.calls == ["prepare", "discard"] and engine.version == 0


def test_failing_persistence_stops_before_the_switch(tmp_path: Path) -> None:
    run = Run(tmp_path, [FakeEngine()])

    def disk_full() -> None:
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run.update.publish(CANDIDATE, persist=disk_full)
    assert run.versions() == [0] and run.engines[0].prepared == {} and run.announced == []


def test_an_engine_that_restarts_between_prepare_and_switch_is_prepared_again(tmp_path: Path) -> None:
    engine = FakeEngine()
    run = Run(tmp_path, [engine, FakeEngine()])
    run.update.publish(CANDIDATE, persist=lambda: engine.restart(ZERO))
    assert run.versions() == [1, 1] and run.announced == [1]


def test_an_engine_unavailable_during_the_switch_is_awaited(tmp_path: Path) -> None:
    engine = FakeEngine()
    run = Run(tmp_path, [engine, FakeEngine()], patience=5.0)

    def die() -> None:
        engine.restart(ZERO)
        engine.fails = {"info": 20, "prepare": 1}

    run.update.publish(CANDIDATE, persist=die)
    assert run.versions() == [1, 1]


def test_an_engine_that_rejects_the_switch_rolls_back_all_engines(tmp_path: Path) -> None:
    stubborn = FakeEngine(fails={"switch": 99})
    run = Run(tmp_path, [FakeEngine(), stubborn])
    with pytest.raises(EngineError, match="switch failed"):
        run.update.publish(CANDIDATE)
    assert run.versions() == [0, 0] and read_live(tmp_path) == ZERO and run.announced == []


def test_an_engine_that_starts_while_the_switch_runs_finds_the_new_version_in_the_file(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    run = Run(tmp_path, [engine])
    seen: list[WeightVersion | None] = []
    engine.on_call = lambda stage: seen.append(read_live(tmp_path)) if stage == "switch" else None
    run.update.publish(CANDIDATE)
    assert seen == [ONE]


def test_an_already_live_version_is_announced_without_engine_calls(tmp_path: Path) -> None:
    engine = FakeEngine(version=1, checksum="sum-1")
    run = Run(tmp_path, [engine])
    run.update.publish(Candidate(ONE, rollout_id=0, parent=0, restored=True))
    assert engine.calls == [] and run.announced == [1]


def test_a_rejecting_gate_keeps_the_candidate_from_every_engine(tmp_path: Path) -> None:
    def gate(candidate: Candidate) -> None:
        raise CandidateRejected("KL to the live model is 9.0")

    run = Run(tmp_path, [FakeEngine()], gates=[gate])
    with pytest.raises(CandidateRejected, match="KL"):
        run.update.publish(CANDIDATE)
    assert run.engines[0].calls == [] and read_live(tmp_path) == ZERO


def test_version_numbers_survive_and_never_repeat(tmp_path: Path) -> None:
    assert VersionNumbers(tmp_path).next() == 1
    assert VersionNumbers(tmp_path).next(5) == 6
    assert VersionNumbers(tmp_path).next(2) == 7


def test_old_artifacts_are_removed_except_protected_ones(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"v{number:06d}").mkdir()
    gone = prune(tmp_path, "v*", keep=2, spare={tmp_path / "v000001"})
    assert [path.name for path in gone] == ["v000000", "v000002", "v000003"]
    assert prune(tmp_path, "v*", keep=0, spare=set()) == []


def test_a_live_version_with_a_missing_folder_is_cleared(tmp_path: Path) -> None:
    """As after a reboot of the machine, whose memory contained it."""
    versions = tmp_path / "versions"
    live = WeightVersion(3, str(artifact_folder(versions, 3)), "sum-3")
    write_live(tmp_path, live)
    assert clear_missing_live(tmp_path) == live and read_live(tmp_path) is None
    Path(live.path).mkdir(parents=True)
    write_live(tmp_path, live)
    assert clear_missing_live(tmp_path) is None and read_live(tmp_path) == live


def test_two_runs_do_not_share_a_folder_of_versions(tmp_path: Path) -> None:
    for _ in range(2):
        claim_folder(tmp_path / "versions", tmp_path / "first")
    with pytest.raises(ConfigError, match=r"contains the versions of .*/first: choose another folder"):
        claim_folder(tmp_path / "versions", tmp_path / "second")
    claim_folder(tmp_path / "second" / "weights", tmp_path / "second")


def test_an_update_does_not_wait_for_an_engine_on_a_machine_that_is_lost(tmp_path: Path) -> None:
    here, lost = FakeEngine(), FakeEngine("http://lost", fails={"info": 99, "prepare": 99, "switch": 99})
    run = Run(tmp_path, [here, lost], patience=60.0, is_lost=lambda url: url == "http://lost")
    run.update.publish(CANDIDATE)
    assert run.versions() == [1, 0] and run.announced == [1]


def test_an_engine_on_another_machine_is_not_sent_to_this_ones_memory(tmp_path: Path) -> None:
    here, apart = FakeEngine(), FakeEngine("http://apart")
    run = Run(tmp_path, [here, apart], is_remote=lambda url: url == "http://apart")
    paths: list[str] = []
    apart.prepare = lambda path, version: (paths.append(path), FakeEngine.prepare(apart, path, version))[1]  # type: ignore[method-assign]
    run.update.publish(CANDIDATE, shared="/weights/v1")
    assert run.versions() == [1, 1] and paths == [ONE.path]
