"""Tests rejections before Ray, engines and trainer start."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from slime.arguments import Arguments
from slime.arguments.rules import parallel
from slime.arguments.rules.parallel import check_packages
from slime.errors import CheckpointError, ConfigError
from slime.plan.refusals import check_before_start
from slime.weights.checkpoints import make_latest


def checkpoint(save: Path, lora: dict[str, object] | None) -> None:
    folder = save / "checkpoint-2"
    (folder / "trainer").mkdir(parents=True)
    meta = {"rollout_id": 1, "global_step": 2, "version": 2, "parent": 1, "lora": lora}
    (folder / "meta.json").write_text(json.dumps(meta))
    make_latest(folder)


def test_adapters_that_differ_from_the_checkpoint_are_rejected_before_the_start(
    tmp_path: Path,
) -> None:
    names = {"lora_rank": 16, "lora_alpha": 32.0, "lora_target_modules": None, "lora_modules_to_save": None}
    checkpoint(tmp_path, names)
    with pytest.raises(
        CheckpointError, match=r"was trained with --lora-rank 16 --lora-alpha 32\.0, this run with no LoRA"
    ):
        check_before_start(Arguments(save=str(tmp_path)), {})
    check_before_start(Arguments(save=str(tmp_path), use_lora=True, lora_rank=16, lora_alpha=32.0), {})
    check_before_start(Arguments(save=str(tmp_path), debug_rollout_only=True), {})
    check_before_start(Arguments(save=str(tmp_path / "new")), {})


def test_a_missing_tracker_package_is_rejected_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="--use-wandb needs the package wandb: pip install wandb"):
        check_packages(Arguments(use_wandb=True))
    with pytest.raises(ConfigError, match="--use-trackio needs the package trackio"):
        check_packages(Arguments(use_trackio=True))
    check_packages(Arguments())


@pytest.mark.parametrize(
    ("env", "mode", "refused"),
    [
        ({}, None, True),
        ({}, "online", True),
        ({"WANDB_MODE": "online"}, None, True),
        ({"WANDB_API_KEY": "x"}, None, False),
        ({"WANDB_MODE": "offline"}, None, False),
        ({}, "offline", False),
        ({"NETRC": __file__}, None, False),
    ],
)
def test_wandb_without_a_key_is_rejected_before_the_start(
    env: dict[str, str], mode: str | None, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    args = Arguments(save=str(tmp_path), use_wandb=True, wandb_mode=mode)
    with pytest.raises(ConfigError, match="needs a key: export WANDB_API_KEY") if refused else nullcontext():
        check_before_start(args, env)
