"""Tests that every script of the track prints its plan without a GPU, data or a model, and rejects impossible
settings."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes.dry_run import bash, dry

SPLITS = {
    "retool_qwen3_4b_rl": "trainer 4 + policy 4 = 8",
    "retool_qwen3_4b_sft": "trainer 8 = 8",
    "retool_qwen3_32b_rl": "trainer 16 + policy 16 = 32",
    "run_toolcall_rl": "trainer 4 + policy 4 = 8",
    "retool_qwen3_4b_prm_rl": "trainer 2 + policy 4 + judge 2 = 8",
    "retool_qwen3_32b_prm_rl": "trainer 16 + policy 16 + judge 8 = 40",
}
SCRIPTS = tuple(SPLITS)


def arguments(told: str) -> dict[str, tuple[str, str]]:
    """Returns (value, source) by flag."""
    found = re.findall(r"^  (--\S+) +(.*)  \[(.*)\]$", told, re.M)
    return {flag: (value, source) for flag, value, source in found}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_dry_run_shows_a_plan_that_fits(name: str) -> None:
    script = f"toolcall-rl/{name}.sh"
    done = dry(script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fits     every part" in done.stdout and SPLITS[name] in done.stdout
    assert "PROMPT_DATA is not set" in done.stdout and os.access(ROOT / script, os.X_OK)
    shown = arguments(done.stdout)
    assert "--rl-buffer-dir" not in shown or shown["--rl-buffer-dir"][1] == "default"
    if name.endswith("sft"):
        assert shown["--loss-type"][0] == "sft_loss" and shown["--tool-key"][0] == "tools"
    else:
        assert (
            "envs     32 at a time, each at most 512 MiB of memory and 64 MiB of files in memory"
            in done.stdout
        )
        assert shown["--custom-generate-function-path"][0] == "toolcall_rl.generate.generate"
        assert shown["--prm-enable"][0] == str("prm" in name)
        assert shown["--advantage-estimator"][0] == ("step_wise" if "prm" in name else "grpo")
        assert shown["--reward-key"] == ("score", "script") and shown["--max-turns"] == ("16", "default")


def test_variables_of_the_track_reach_its_flags() -> None:
    tools = '{"tools": [{"type": "python"}]}'
    data = str(ROOT / "toolcall-rl/examples/problems.jsonl")
    done = dry(
        "toolcall-rl/run_toolcall_rl.sh", TOOLS_CONFIG=tools, MAX_TURNS="8", PROMPT_DATA=data, EVAL_DATA=data
    )
    assert done.returncode == 0, done.stderr
    shown = arguments(done.stdout)
    assert shown["--tools-config"] == (tools, "variable TOOLS_CONFIG") and shown["--max-turns"][0] == "8"
    assert shown["--prompt-data"] == (data, "variable PROMPT_DATA") and shown["--eval-interval"][0] == "20"
    assert "PROMPT_DATA is not set" not in done.stdout


def test_a_run_without_tasks_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    done = bash("toolcall-rl/run_toolcall_rl.sh", HF_CKPT=str(tmp_path))
    assert done.returncode == 2 and "PROMPT_DATA is not set" in done.stderr


@pytest.mark.parametrize("name", [*SCRIPTS, "run_tiny_toolcall_rl"])
def test_a_script_describes_itself(name: str) -> None:
    assert f"bash toolcall-rl/{name}.sh" in bash(f"toolcall-rl/{name}.sh", "--help").stdout
