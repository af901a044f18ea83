"""Tests defects that no other test covers, and the list of all of them in slime/tests/README.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from slime.arguments import Arguments
from slime.contracts.examples import VOCABULARY, example_groups
from slime.training.fsdp import FSDPTrainer
from slime.types import Sample, flatten
from tests import ROOT

HOOK = """
import torch
SEEN = []

def postprocess_rollout_data(args, rollout_id, rollout_data):
    SEEN.append((rollout_id, rollout_data))
    for values in rollout_data["advantages"]:
        values.mul_(args.hook_scale)
"""


def test_every_test_of_the_list_of_defects_exists_and_no_number_is_missing() -> None:
    text = (ROOT / "slime" / "tests" / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \|.*$", text, re.MULTILINE)
    assert rows == [str(number) for number in range(1, 20)]
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", text)
    missing = [
        f"{file}::{test}"
        for file, test in named
        if f"def {test}("
        not in ((ROOT / "tests" / file).read_text() if (ROOT / "tests" / file).exists() else "")
    ]
    assert len(named) >= 19
    assert missing == []


def test_no_script_kills_processes_that_it_did_not_start() -> None:
    scripts = subprocess.run(
        ["git", "ls-files", "*.sh", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    kills = re.compile(r"(?m)^[^#\n]*\b(pkill|killall|ray stop|kill -9 -1)\b")
    guilty = [
        name
        for name in scripts
        if not name.startswith("tests/")
        and (ROOT / name).exists()
        and kills.search((ROOT / name).read_text())
    ]
    assert guilty == []


@pytest.fixture
def model_folder(tmp_path: Path) -> str:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "head_dim": 8,
    }
    shape |= {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": VOCABULARY}
    Qwen3ForCausalLM(Qwen3Config(**shape)).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text("{}")
    return str(tmp_path / "model")


def train_once(model: str, save: Path, **changes: object) -> dict[str, float]:
    values: dict[str, Any] = {
        "hf_checkpoint": model,
        "ref_load": model,
        "save": str(save),
        "disable_rewards_normalization": True,
        "global_batch_size": 3,
    }
    extra = {name: changes.pop(name) for name in ("hook_scale",) if name in changes}
    args = Arguments(**(values | changes))
    for name, value in extra.items():
        setattr(args, name, value)
    trainer = FSDPTrainer(args)
    try:
        return trainer.train(4, samples())
    finally:
        trainer.close()


def samples() -> list[Sample]:
    return list(flatten(example_groups()))


def test_the_hook_after_advantages_gets_the_data_and_its_changes_are_trained(
    model_folder: str, tmp_path: Path
) -> None:
    (tmp_path / "hook.py").write_text(HOOK)
    plain = train_once(model_folder, tmp_path / "a")
    hook = {"rollout_data_postprocess_path": str(tmp_path / "hook.py")}
    same = train_once(model_folder, tmp_path / "b", **hook, hook_scale=1.0)
    doubled = train_once(model_folder, tmp_path / "c", **hook, hook_scale=2.0)
    assert same["pg_loss"] == pytest.approx(plain["pg_loss"], abs=1e-6)
    assert doubled["advantage"] == pytest.approx(2 * plain["advantage"], rel=1e-5)
    assert plain["advantage"] > 0
    from slime.plugins import load_module

    rollout_id, data = load_module(str(tmp_path / "hook.py")).SEEN[-1]
    assert rollout_id == 4
    assert [len(values) for values in data["log_probs"]] == data["response_lengths"]
    assert [len(values) for values in data["advantages"]] == data["response_lengths"]
