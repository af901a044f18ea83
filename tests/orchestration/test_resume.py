"""Training over recorded rollouts, killed again and again, ends bit for bit where an undisturbed run ends."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from slime import checkpoints, processes, replay
from slime.types import Sample

ROOT = Path(__file__).parents[2]
LOSS = Path(__file__).with_name("deadly_loss.py")
ROLLOUTS = 6


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Files of rollouts; the samples of rollout 1 have a reward by which the loss knows them."""
    pattern = str(tmp_path_factory.mktemp("rollouts") / "{rollout_id}.json.gz")
    chance = random.Random(0)
    for rollout_id in range(ROLLOUTS):
        samples = [
            Sample(
                group_index=index,
                index=index,
                tokens=[chance.randrange(4, 300) for _ in range(16)],
                response_length=6,
                reward=1000.0 if rollout_id == 1 else chance.choice([-1.0, 1.0]),
            )
            for index in range(4)
        ]
        replay.save(pattern, rollout_id, samples)
    return pattern


def environment(folder: Path, deadly: str = "") -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "slime"), os.environ.get("PYTHONPATH", "")]
    shown = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **shown, "DEADLY": deadly, "DEADLY_DIR": str(folder)}


def command(run_dir: Path, model_path: Path, recorded: str, program: str, *more: str) -> list[str]:
    driver = [sys.executable, str(ROOT / "slime" / program), "--run-dir", str(run_dir)]
    driver += ["--hf-checkpoint", str(model_path), "--load-debug-rollout-data", recorded]
    driver += ["--num-rollout", str(ROLLOUTS), "--num-train-processes", "2", "--save-interval", "1"]
    driver += ["--rollout-batch-size", "4", "--disable-rewards-normalization", "--lr", "1e-3"]
    driver += ["--loss-type", "custom_loss", "--custom-loss-function-path", str(LOSS)]
    driver += ["--on-weights-live-path", f"{LOSS}:on_weights_live", "--no-use-tensorboard", *more]
    return [sys.executable, "-m", "slime.supervisor", "--run-dir", str(run_dir), "--", *driver]


def final_state(run_dir: Path, tmp_path: Path) -> dict[str, Any]:
    """Weights, optimizer and random states of the last checkpoint, flat."""
    folder = checkpoints.latest(run_dir / "checkpoints")
    assert folder is not None and folder.name == f"checkpoint-{ROLLOUTS}"
    whole = tmp_path / f"{run_dir.name}.pt"
    dcp_to_torch_save(folder / "trainer", whole)
    state = dict(flat("", torch.load(whole, weights_only=False)))
    for rank in (0, 1):
        rng = torch.load(folder / "trainer" / f"rng_{rank}.pt", weights_only=True)
        state[f"rng.{rank}"] = rng["torch"]
    return state


def flat(name: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        return [(name, value)]
    return [pair for key, inner in value.items() for pair in flat(f"{name}.{key}", inner)]


def test_a_run_that_is_killed_at_every_point_ends_bit_identical(
    tmp_path: Path, model_path: Path, recorded: str
) -> None:
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    done = subprocess.run(
        command(quiet, model_path, recorded, "train.py", "--keep-checkpoints", "2"),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kept = sorted(path.name for path in (quiet / "checkpoints").glob("checkpoint-*"))
    assert kept == ["checkpoint-5", "checkpoint-6", "checkpoint-latest"]

    points = "in-step before-commit in-write before-link driver-after-live"
    done = subprocess.run(
        command(killed, model_path, recorded, "train_async.py", "--async-save", "--health-timeout", "20"),
        env=environment(tmp_path, points),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all((tmp_path / point).exists() for point in points.split()), done.stderr
    assert not [record for record in processes.read_records(killed) if record.alive()]

    expected, found = final_state(quiet, tmp_path), final_state(killed, tmp_path)
    assert expected.keys() == found.keys() and len(expected) > 20
    differ = [
        name
        for name, value in expected.items()
        if not (torch.equal(value, found[name]) if isinstance(value, torch.Tensor) else value == found[name])
    ]
    assert differ == []
    first = [json.loads(line) for line in (quiet / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in first] == list(range(ROLLOUTS))
    assert all(line["perf/train_time"] > 0 and "train/loss" in line for line in first)
    assert "rollout 5 | version 6" in (quiet / "logs" / "training.log").read_text()
