"""Tests that training over recorded rollouts, killed repeatedly, ends bit by bit like an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from claw_base.run_folder import records
from slime import replay
from slime.types import Sample
from slime.weights import checkpoints
from tests import FAKES, ROOT

LOSS = FAKES / "deadly_loss.py"
ROLLOUTS = 6


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns files of rollouts; the loss recognises the samples of rollouts 1 and 4 by their rewards."""
    pattern = str(tmp_path_factory.mktemp("rollouts") / "{rollout_id}.json.gz")
    chance = random.Random(0)
    for rollout_id in range(ROLLOUTS):
        samples = [
            Sample(
                group_index=index,
                index=index,
                tokens=[chance.randrange(4, 300) for _ in range(16)],
                response_length=6,
                reward={1: 1000.0, 4: 2000.0}.get(rollout_id, chance.choice([-1.0, 1.0])),
            )
            for index in range(4)
        ]
        replay.save(pattern, rollout_id, samples)
    return pattern


def environment(folder: Path, deadly: str = "") -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "slime"), os.environ.get("PYTHONPATH", "")]
    shown = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **shown, "DEADLY": deadly, "DEADLY_DIR": str(folder)}


def command(run_dir: Path, model_path: Path, program: str, *more: str) -> list[str]:
    driver = [sys.executable, str(ROOT / "slime" / program), "--run-dir", str(run_dir)]
    driver += ["--hf-checkpoint", str(model_path)]
    driver += ["--num-rollout", str(ROLLOUTS), "--num-train-processes", "2", "--save-interval", "1"]
    driver += ["--rollout-batch-size", "4", "--disable-rewards-normalization", "--lr", "1e-3"]
    driver += ["--loss-type", "custom_loss", "--custom-loss-function-path", str(LOSS)]
    driver += ["--on-weights-live-path", f"{LOSS}:on_weights_live", "--no-use-tensorboard", *more]
    return [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(run_dir), "--", *driver]


def final_state(run_dir: Path) -> dict[str, Any]:
    """Returns weights, optimizer and random states of the last checkpoint, flat."""
    folder = checkpoints.latest(run_dir / "checkpoints")
    assert folder is not None and folder.name == f"checkpoint-{ROLLOUTS}"
    whole = run_dir / "final.pt"
    dcp_to_torch_save(folder / "trainer", whole)
    state = dict(flat("", torch.load(whole, weights_only=False)))
    for rank in (0, 1):
        rng = torch.load(folder / "trainer" / f"rng_{rank}.pt", weights_only=True)
        state[f"rng.{rank}"] = rng["torch"]
    return state


def flat(name: str, value: object) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        return [(name, value)]
    return [pair for key, inner in value.items() for pair in flat(f"{name}.{key}", inner)]


def run(command: list[str], env: dict[str, str]) -> str:
    """Returns the standard error of the run."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def assert_same(expected: dict[str, Any], found: dict[str, Any]) -> None:
    assert expected.keys() == found.keys() and len(expected) > 20
    differ = [
        name
        for name, value in expected.items()
        if not (torch.equal(value, found[name]) if isinstance(value, torch.Tensor) else value == found[name])
    ]
    assert differ == []


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, model_path: Path, recorded: str
) -> tuple[Path, dict[str, Any]]:
    run_dir = tmp_path_factory.mktemp("undisturbed")
    replayed = ("--load-debug-rollout-data", recorded)
    run(command(run_dir, model_path, "train.py", *replayed, "--keep-checkpoints", "2"), environment(run_dir))
    return run_dir, final_state(run_dir)


def test_an_uninterrupted_run_keeps_the_newest_checkpoints_and_reports_metrics(
    undisturbed: tuple[Path, dict[str, Any]],
) -> None:
    run_dir, _ = undisturbed
    kept = sorted(path.name for path in (run_dir / "checkpoints").glob("checkpoint-*"))
    assert kept == ["checkpoint-5", "checkpoint-6", "checkpoint-latest"]
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(ROLLOUTS))
    assert all(line["perf/train_time"] > 0 and "train/loss" in line for line in lines)
    assert "rollout 5 | version 6" in (run_dir / "logs" / "training.log").read_text()


def test_a_run_that_is_killed_at_every_point_ends_bit_identical(
    tmp_path: Path, model_path: Path, recorded: str, undisturbed: tuple[Path, dict[str, Any]]
) -> None:
    points = "in-step before-commit driver-after-live"
    replayed = ("--load-debug-rollout-data", recorded)
    said = run(
        command(tmp_path, model_path, "train_async.py", *replayed, "--async-save"),
        environment(tmp_path, points),
    )
    assert all((tmp_path / point).exists() for point in points.split()), said
    assert "training on rollout 1 failed: rank 1 ended" in said
    assert not [record for record in records.read_records(tmp_path) if record.alive()]
    assert_same(undisturbed[1], final_state(tmp_path))


def test_hanging_or_crashed_processes_are_replaced_and_the_run_ends_bit_identical(
    tmp_path: Path, model_path: Path, recorded: str, undisturbed: tuple[Path, dict[str, Any]]
) -> None:
    limits = ["--train-timeout", "15", "--health-timeout", "5", "--rollout-timeout", "10"]
    prompts = tmp_path / "prompts.jsonl"
    rows = [sample.to_dict() for number in range(ROLLOUTS) for sample in replay.load(recorded, number)]
    prompts.write_text("\n".join(json.dumps({"input": "x", "metadata": row}) for row in rows))
    own = ["--debug-train-only", "--prompt-data", str(prompts), "--save-interval", "2"]
    own += ["--rollout-function-path", f"{LOSS}:generate_rollout"]
    env = environment(tmp_path, "hang-in-step manager-stops function-hangs manager-dies")
    said = run(command(tmp_path, model_path, "train.py", *own, *limits), env)
    stopped = (tmp_path / "hang-in-step").read_text()
    assert "training on rollout 1 did not finish within 15 s: rank 0 (pid" in said
    assert f"rank 1 (pid {stopped}, stopped)" in said
    assert "the rollout manager did not respond for 5 s" in said
    assert "rollout 3 did not finish within 10 s; last seen: {'waiting': {'rollout 3':" in said
    assert said.count("Restarting the rollout manager") >= 3
    assert not [record for record in records.read_records(tmp_path) if record.alive()]
    assert_same(undisturbed[1], final_state(tmp_path))


def live(run_dir: Path) -> list[tuple[int, int, str]]:
    """Returns rollout, version and checksum of all live versions, in order."""
    told = [json.loads(line) for line in (run_dir / "live.jsonl").read_text().splitlines()]
    return [(entry["rollout_id"], entry["version"], entry["checksum"]) for entry in told]


def test_a_run_stopped_in_a_step_resumes_after_it_and_ends_bit_identical(
    tmp_path: Path, model_path: Path, recorded: str, undisturbed: tuple[Path, dict[str, Any]]
) -> None:
    words = ("--load-debug-rollout-data", recorded, "--save-interval", "20")
    start, env = (
        command(tmp_path, model_path, "train_async.py", *words),
        environment(tmp_path, "stop-in-step"),
    )
    said = run(start, env)
    latest = checkpoints.latest(tmp_path / "checkpoints")
    assert latest is not None and latest.name == "checkpoint-5", said
    assert "a checkpoint contains version 1" in said
    assert not [record for record in records.read_records(tmp_path) if record.alive()]

    run(start, env)
    told = live(tmp_path)
    assert [entry[:2] for entry in told] == [(-1, 0), (4, 1), (4, 1), (5, 2)]
    assert told[1] == told[2], "the same weights are live again"
    assert_same(undisturbed[1], final_state(tmp_path))


def test_a_second_signal_ends_a_saving_run_and_keeps_the_previous_checkpoint(
    tmp_path: Path, model_path: Path, recorded: str, undisturbed: tuple[Path, dict[str, Any]]
) -> None:
    words = ("--load-debug-rollout-data", recorded, "--save-interval", "3")
    start = command(tmp_path, model_path, "train.py", *words)
    env = environment(tmp_path, "stop-in-step commit-hangs")
    supervisor = subprocess.Popen(start, env=env)
    try:
        deadline = time.monotonic() + 200
        while not (tmp_path / "commit-hangs").exists():
            assert supervisor.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        assert supervisor.poll() is None, "it waits for the checkpoint"
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(60) == 0
    finally:
        supervisor.kill()
    latest = checkpoints.latest(tmp_path / "checkpoints")
    assert latest is not None and latest.name == "checkpoint-3"
    assert not [record for record in records.read_records(tmp_path) if record.alive()]

    run(start, env)
    assert [entry[:2] for entry in live(tmp_path)] == [(-1, 0), (2, 1), (2, 1), (5, 3)]
    assert_same(undisturbed[1], final_state(tmp_path))
