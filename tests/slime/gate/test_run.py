"""Tests whole runs with bad updates: they are never served, whichever process is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from claw_base.run_folder import orders, records
from slime.processes.servers import ServerManager
from tests import FAKES
from tests.slime.test_training_run import command, environment

pytestmark = pytest.mark.timeout(300)
HOOKS = FAKES / "spoilt_updates.py"
SPOILT = {"2": "nan", "3": "truncated", "5": "shape", "6": "exploded"}


class Run:
    def __init__(self, run_dir: Path, supervisor: subprocess.Popen[bytes]) -> None:
        self.run_dir, self.supervisor = run_dir, supervisor
        self.served: set[int] = set()

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.run_dir / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def versions(self, name: str = "live.jsonl") -> list[int]:
        return [line["version"] for line in self.lines(name)]

    def until(self, condition: Callable[[], object], seconds: float = 260.0) -> None:
        """Waits, and checks the engine's served version all the time."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.supervisor.poll() is None and time.monotonic() < deadline, self.words()
            record = records.read_record(self.run_dir, "engine-0")
            if record is not None:
                try:
                    says = httpx.get(f"{record.url}/model_info", trust_env=False, timeout=5).json()
                    self.served.add(int(says["weight_version"]))
                except httpx.HTTPError:
                    pass
            time.sleep(0.05)

    def words(self) -> str:
        logs = [self.run_dir / "terminal.log", *sorted((self.run_dir / "logs").glob("*.log"))]
        return "\n".join(f"--- {path.name}\n{path.read_text()[-2500:]}" for path in logs)


@contextmanager
def running(run_dir: Path, model_path: Path, *more: str) -> Iterator[Run]:
    port = ServerManager(run_dir).choose_port("gateway")
    words = [*command(run_dir, model_path, port), "--gate", "--gate-max-change", "1"]
    words += ["--custom-update-weight-post-write-path", f"{HOOKS}:after_weights_are_written"]
    words += ["--on-weights-rejected-path", f"{HOOKS}:on_weights_rejected", *more]
    with (run_dir / "terminal.log").open("wb") as output:
        supervisor = subprocess.Popen(words, env=environment(), stdout=output, stderr=subprocess.STDOUT)
    try:
        yield Run(run_dir, supervisor)
    finally:
        supervisor.terminate()
        assert supervisor.wait(60) == 0
    assert [record for record in records.read_records(run_dir) if record.alive()] == []


def test_corrupt_updates_are_rejected_one_by_one_and_training_continues(
    tmp_path: Path, model_path: Path
) -> None:
    (tmp_path / "spoil.json").write_text(json.dumps(SPOILT))
    with running(tmp_path, model_path) as run:
        run.until(lambda: 8 in run.versions())
        driver = records.read_record(tmp_path, "driver")
        assert run.versions()[:5] == [0, 1, 4, 7, 8] and not {2, 3, 5, 6} & run.served
        rejected = run.lines("rejected.jsonl")
        assert [line["version"] for line in rejected] == [2, 3, 5, 6]
        assert [line["rollout_id"] for line in rejected] == [1, 2, 4, 5]
        reasons = [line["reason"] for line in rejected]
        assert "not finite" in reasons[0] and "cannot read" in reasons[1] and "float32 [" in reasons[2]
        assert (
            "the relative change of the weights is" in reasons[3]
            and rejected[3]["measurements"]["change"] > 1
        )
        live = {line["version"]: line for line in run.lines("live.jsonl")}
        assert [live[version]["parent"] for version in (4, 7, 8)] == [1, 4, 7]
        assert live[4]["measurements"]["change"] > 0
        told = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        assert [line.get("gate/rejected", 0.0) for line in told[:7]] == [0, 1, 1, 0, 1, 1, 0]
        slower = [line["train/lr"] / told[0]["train/lr"] for line in told[:7]]
        assert slower == pytest.approx([1, 1, 1, 0.5, 1, 1, 0.5]), "after two rejections in a row"
        assert records.read_record(tmp_path, "driver") == driver, "no process failed over a rejection"


def test_a_separate_gate_engine_answers_and_its_crash_delays_nothing(
    tmp_path: Path, model_path: Path
) -> None:
    words = [
        "--gate-samples-path",
        f"{HOOKS}:gate_samples",
        "--gate-engine",
        "cpu",
        "--gate-answer-tokens",
        "4",
    ]

    def told() -> list[dict[str, Any]]:
        return [line for line in run.lines("metrics.jsonl") if "gate/obeyed" in line]

    with running(tmp_path, model_path, *words) as run:
        run.until(lambda: len(told()) >= 2)
        assert {line["gate/obeyed"] for line in told()} == {1.0}
        engine = records.read_record(tmp_path, "gate-engine-0")
        assert engine is not None and engine.role == "gate_engine" and engine.alive()
        os.kill(engine.pid, signal.SIGKILL)
        before = len(run.versions())
        run.until(lambda: len(run.versions()) > before + 1)
        run.until(
            lambda: (again := records.read_record(tmp_path, "gate-engine-0")) and again.pid != engine.pid
        )
        asked = len(told())
        run.until(lambda: len(told()) > asked + 1)
        assert run.lines("rejected.jsonl") == []


def test_after_a_driver_is_killed_in_the_gate_the_rejected_update_is_never_served(
    tmp_path: Path, model_path: Path
) -> None:
    points = ["spoilt", "rejected", "examined"]
    (tmp_path / "spoil.json").write_text(json.dumps({"2": "nan", "3": "nan"}))
    (tmp_path / "die.json").write_text(json.dumps({"at": points}))
    samples = ["--gate-samples-path", f"{HOOKS}:gate_samples"]
    with running(tmp_path, model_path, *samples) as run:
        run.until(lambda: len([v for v in run.versions() if v > 3]) >= 2 + len(points))
        assert not (tmp_path / "die.json").exists(), "it was killed"
        assert not {2, 3} & run.served and not {2, 3} & set(run.versions())
        entries = run.lines("live.jsonl")
        again = [line for line in entries[1:] if line["restored"]]
        assert len(again) == len(points) and again[0]["version"] == 1
        assert run.served <= set(run.versions()), "nothing answered that had not passed"
        trained = [line["rollout_id"] for line in entries if not line["restored"]]
        assert trained == sorted(set(trained))


def test_a_rollback_is_served_within_seconds_and_training_continues_from_it(
    tmp_path: Path, model_path: Path
) -> None:
    """Also if the driver is killed during it, as it is the first time."""
    (tmp_path / "die.json").write_text(json.dumps({"at": ["undone"]}))
    live = ["--on-weights-live-path", f"{HOOKS}:on_weights_live", "--keep-versions", "40"]
    with running(tmp_path, model_path, *live) as run:
        run.until(lambda: 3 in run.versions())
        order = orders.place(tmp_path, "rollback", 1, drop_turns=True, reason="by hand")
        run.until(lambda: orders.answer_to(tmp_path, order))
        answer = orders.answer_to(tmp_path, order)
        assert answer is not None and answer["error"] is None, answer
        undone = max(run.versions())
        run.until(lambda: [v for v in run.versions() if v > undone + 1])
        assert not (tmp_path / "die.json").exists()
        entries = run.lines("live.jsonl")
        back = max(number for number, line in enumerate(entries) if "undo" in line)
        assert entries[back]["version"] == 1 and entries[back]["undo"]["drop_turns"] is True
        after = next(line for line in entries[back + 1 :] if not line["restored"])
        assert after["parent"] == 1 and after["version"] > undone - 1, "numbers are never reused"
        assert entries[back]["checksum"] == next(line for line in entries if line["version"] == 1)["checksum"]
        first = orders.place(tmp_path, "pin", 0)
        run.until(lambda: orders.answer_to(tmp_path, first))
        held = len(run.versions())
        time.sleep(3)
        assert len(run.versions()) <= held + 1, "training waits"
        says = httpx.get(f"{records.read_record(tmp_path, 'engine-0').url}/model_info", trust_env=False)  # type: ignore[union-attr]
        assert says.json()["weight_version"] == "0"
        orders.place(tmp_path, "unpin")
        run.until(lambda: len(run.versions()) > held + 1)
        driver = records.read_record(tmp_path, "driver")
        second = orders.place(tmp_path, "rollback", 1, drop_turns=False, reason="again")
        run.until(lambda: orders.answer_to(tmp_path, second))
        assert run.versions().count(1) >= 3, "it was trained, gone back to, and gone back to again"
        newest = max(run.versions())
        run.until(lambda: max(run.versions()) > newest)
        assert records.read_record(tmp_path, "driver") == driver
