"""Tests that the trainer's export and the merge tool write a correct probe with the weights."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slime.types import Sample
from slime.weights.probe import FILE, Probe, expected_probe
from tests import ROOT
from tests.fakes.fixtures import MakeTrainer

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


LORA = {"use_lora": True, "lora_rank": 4, "lora_alpha": 32.0, "lora_dropout": 0.5}


def computed(folder: Path, tmp_path: Path) -> Probe:
    """Returns plain transformers' probe of a folder, without reading its own probe."""
    copy = tmp_path / f"{folder.name}_without_probe"
    shutil.copytree(folder, copy)
    (copy / FILE).unlink(missing_ok=True)
    return expected_probe(str(copy))


def learn(trainer: Trainer) -> None:
    ids = [5, 9, 2, 7, 3, 8]
    trainer.train(
        0,
        [Sample(tokens=ids, response_length=3, rollout_log_probs=[-3.0] * 3, reward=1.0, temperature=1.0)]
        * 2,
    )


@pytest.mark.parametrize("adapter", [False, True])
def test_the_trainer_writes_the_log_probs_of_its_weights(
    make_trainer: MakeTrainer, tmp_path: Path, adapter: bool
) -> None:
    trainer = make_trainer(rollout_backend="sglang", lr=1e-2, **(LORA if adapter else {}))
    trainer.export_weights(str(tmp_path / "v1"), 1)
    learn(trainer)
    trainer.export_weights(str(tmp_path / "v2"), 2)
    first, second = (expected_probe(str(tmp_path / name)) for name in ("v1", "v2"))
    assert (tmp_path / "v2" / FILE).is_file() and second.dtype == "float32"
    true = computed(tmp_path / "v2", tmp_path)
    assert second.gap(true.log_probs) < 1e-4 < first.gap(true.log_probs), (
        "a probe of other weights is told apart"
    )


def test_engines_that_verify_their_weights_need_no_probe(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    make_trainer().export_weights(str(tmp_path / "v1"), 1)
    assert not (tmp_path / "v1" / FILE).exists()


def test_the_merge_tool_writes_the_merged_model(
    make_trainer: MakeTrainer, model_folder: str, tmp_path: Path
) -> None:
    trainer = make_trainer(lr=1e-2, save=str(tmp_path / "save"), **LORA)
    learn(trainer)
    checkpoint = trainer.save(0, 1, None)
    command = [sys.executable, str(ROOT / "slime/tools/merge_lora_adapter.py"), "--base-model", model_folder]
    command += ["--adapter", checkpoint, "--output", str(tmp_path / "merged")]
    subprocess.run(command, check=True, capture_output=True)
    written = expected_probe(str(tmp_path / "merged"))
    assert (tmp_path / "merged" / FILE).is_file()
    assert written.gap(computed(tmp_path / "merged", tmp_path).log_probs) < 1e-4
