"""Tests that a run stopped between two checkpoints continues to serve and train from its last state."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from claw_base.run_folder import records
from slime.processes import control
from slime.processes.servers import ServerManager
from slime.weights import checkpoints
from tests.slime.test_training_run import Run, command, environment

SELDOM = ("--save-interval", "20")


def start(run_dir: Path, model_path: Path, port: int) -> Run:
    log = run_dir / "terminal.log"
    words = [*command(run_dir, model_path, port), *SELDOM]
    with log.open("ab") as output:
        supervisor = subprocess.Popen(words, env=environment(), stdout=output, stderr=subprocess.STDOUT)
    return Run(run_dir, supervisor, log)


def stop(run: Run, number: int) -> None:
    run.supervisor.send_signal(number)
    assert run.supervisor.wait(60) == 0, run.words()
    assert not [record for record in records.read_records(run.run_dir) if record.alive()]


def test_after_a_restart_the_live_version_is_restored_and_no_turn_is_trained_twice(
    tmp_path: Path, model_path: Path
) -> None:
    port = ServerManager(tmp_path).choose_port("gateway")
    run = start(tmp_path, model_path, port)
    try:
        run.eventually(lambda: len(run.live()) >= 3, 90)  # the first weights, and two versions
        stop(run, signal.SIGTERM)
        stood = run.live()[-1]
        folder = checkpoints.latest(tmp_path / "checkpoints")
        assert folder is not None, run.words()
        meta = checkpoints.read_meta(folder)
        assert [meta[name] for name in ("version", "parent", "rollout_id")] == [
            stood[name] for name in ("version", "parent", "rollout_id")
        ]

        before = len(run.live())
        run = start(tmp_path, model_path, port)
        run.eventually(lambda: len(run.live()) >= before + 2, 90)
        says = run.engine_says()
        stop(run, signal.SIGINT)
    finally:
        run.supervisor.kill()
        control.kill_marked(tmp_path)
        ServerManager(tmp_path).stop_all()
    restored, following = run.live()[before : before + 2]
    assert [restored[name] for name in ("version", "rollout_id", "checksum")] == [
        stood[name] for name in ("version", "rollout_id", "checksum")
    ]
    assert restored["restored"] and not following["restored"]
    assert (following["parent"], following["rollout_id"]) == (stood["version"], stood["rollout_id"] + 1)
    assert int(says["weight_version"]) > stood["version"]
    trained = [entry["rollout_id"] for entry in run.live() if not entry["restored"]]
    assert trained == list(range(len(trained)))
