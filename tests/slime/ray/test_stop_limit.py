"""Tests the time limit of a stop: it allows for the checkpoint, by the bytes of the model and the speed of the
disk."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from slime.arguments import parse_args
from slime.plan.shape import KNOWN
from slime.ray import stop
from slime.ray.limits import load_limit, save_limit, update_limit
from slime.ray.stop import LEAST, STEP, disk_speed, stop_limit

MB = 1e6


def arguments(tmp_path: Path, model: str, *flags: str) -> Any:
    """Returns the arguments of a trainer of a well-known model, whose folder contains only its configuration."""
    folder = tmp_path / model
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(KNOWN[model]))
    words = ["--hf-checkpoint", str(folder), "--run-dir", str(tmp_path / "run"), "--backend", "sglang"]
    words += ["--actor-num-gpus-per-node", "4", "--rollout-num-gpus", "2", "--disable-rewards-normalization"]
    rows = tmp_path / "prompts.jsonl"
    rows.write_text('{"input": "x"}\n')
    return parse_args(
        [*words, "--prompt-data", str(rows), "--rm-type", "random", *flags], env={}, packages=False
    )


@pytest.mark.parametrize(
    ("model", "flags", "speed", "seconds"),
    [
        ("Qwen3-4B", (), 2000 * MB, 120),  # 56 GB in 28 s, twice, and the step
        ("Qwen3-4B", (), 100 * MB, 60 + 2 * 56.3e9 / (100 * MB)),  # a network disk
        ("Qwen3-4B", ("--use-lora",), 100 * MB, 60 + 2 * 8.4e9 / (100 * MB)),
        ("Qwen3-4B", ("--stop-timeout", "45"), 1 * MB, 45),
        ("Qwen3-4B", ("--stop-timeout", "0"), 1 * MB, math.inf),
        ("Qwen3-4B", (), 1 * MB, 60 + 1800),  # --save-timeout
        ("Qwen3-0.6B", (), 200 * MB, 120 + 25),
        ("Qwen3-4B", (), math.inf, 120),
    ],
)
def test_the_stop_limit_follows_checkpoint_size_and_disk_speed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    flags: tuple[str, ...],
    speed: float,
    seconds: float,
) -> None:
    monkeypatch.setattr(stop, "disk_speed", lambda folder: speed)
    found = stop_limit(arguments(tmp_path, model, *flags))
    assert found == pytest.approx(seconds, rel=0.05) and found >= min(seconds, LEAST) and STEP < LEAST


@pytest.mark.parametrize(
    ("flags", "size", "update", "save", "load"),
    [
        ((), 8 * 10**9, 300, 1800, 1800),
        ((), 64 * 10**9, 640, 4480, 4480),  # 32 billion numbers on a network disk
        (("--use-lora",), 64 * 10**9, 640, 1800, 1800),
        (("--weight-update-timeout", "30", "--save-timeout", "60"), 64 * 10**9, 30, 60, 4480),
        (("--weight-update-timeout", "0", "--load-timeout", "0"), 8 * 10**9, math.inf, 1800, 0),
    ],
)
def test_the_stop_limit_of_a_large_model_allows_for_a_slow_disk(
    tmp_path: Path, flags: tuple[str, ...], size: int, update: float, save: float, load: float
) -> None:
    args = arguments(tmp_path, "Qwen3-4B", *flags)
    for part in range(2):
        with (Path(args.hf_checkpoint) / f"model-{part}.safetensors").open("wb") as file:
            file.truncate(size // 2)
    assert (update_limit(args), save_limit(args), load_limit(args)) == (update, save, load)


def test_a_cpu_trainer_has_the_minimum_stop_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "disk_speed", lambda folder: pytest.fail("its disk is measured"))
    args = arguments(tmp_path, "Qwen3-0.6B")
    args.actor_num_gpus_per_node = 0
    assert stop_limit(args) == LEAST


def test_a_disk_is_measured_by_a_file_that_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    assert 0 < disk_speed(folder, 2 << 20) < math.inf
    assert list(folder.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert disk_speed(tmp_path / "file" / "checkpoints", 1 << 20) == math.inf
