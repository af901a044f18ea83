"""Tests launch scripts of the terminal track: the plan of each, its rejections, and the tiny script's flags."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from slime.errors import ConfigError
from terminal_rl.check import TASKS
from terminal_rl.convert import main as convert
from terminal_rl.generate import TerminalFlags, start
from tests import ROOT
from tests.fakes.dry_run import bash, dry

SCRIPTS = sorted(
    str(path.relative_to(ROOT)) for path in ROOT.glob("terminal-rl/*_rl*.sh") if "tiny" not in path.name
)


def arguments(told: str) -> dict[str, tuple[str, str]]:
    """Returns (value, source) by flag."""
    return {
        flag: (value, source)
        for flag, value, source in re.findall(r"^  (--\S+) +(.*)  \[(.*)\]$", told, re.M)
    }


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_dry_run_shows_a_plan_that_fits(script: str) -> None:
    done = dry(script, PARALLEL_ENVS="7", MAX_STEPS="12", ENV_TYPE="terminal")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fits     every part" in done.stdout and "problem" not in done.stdout
    shown = arguments(done.stdout)
    assert shown["--custom-generate-function-path"][0] == "terminal_rl.generate.generate"
    assert shown["--parallel-envs"] == ("7", "variable PARALLEL_ENVS")
    assert shown["--max-steps"] == ("12", "variable MAX_STEPS")
    assert shown["--tasks-dir"][0] == f"{ROOT}/terminal-rl/tasks"
    assert shown["--prompt-data"] == (f"{ROOT}/terminal-rl/data/train.jsonl", "script")
    assert shown["--eval-prompt-data"][0] == str(["heldout", f"{ROOT}/terminal-rl/data/heldout.jsonl"])
    assert (
        "envs     7 at a time, each at most 512 MiB of memory and 256 MiB of files in a folder" in done.stdout
    )
    assert (shown["--rollout-batch-size"][0], shown["--n-samples-per-prompt"][0]) == ("16", "8")
    assert (ROOT / script).name in (ROOT / "terminal-rl/README.md").read_text()
    assert os.access(ROOT / script, os.X_OK)


def test_the_script_for_two_machines_has_a_judge_of_steps_on_the_second() -> None:
    done = dry("terminal-rl/terminal_qwen3_8b_prm_rl_2nodes.sh", PRM_M="3")
    assert "trainer 4 + policy 4 + judge 8 = 16" in done.stdout and "2 machines" in done.stdout
    shown = arguments(done.stdout)
    assert (shown["--prm-enable"][0], shown["--advantage-estimator"][0]) == ("True", "step_wise")
    assert (shown["--prm-m"][0], shown["--prm-temperature"][0], shown["--prm-num-gpus"][0]) == (
        "3",
        "0.0",
        "8",
    )


def test_custom_tasks_need_their_rows() -> None:
    done = dry("terminal-rl/run_terminal_rl.sh", DATASET_DIR="/data/tasks")
    assert "PROMPT_DATA is not set" in done.stdout
    assert arguments(done.stdout)["--tasks-dir"] == ("/data/tasks", "variable DATASET_DIR")


def test_the_prompt_rows_match_the_shipped_tasks(tmp_path: Path) -> None:
    assert convert(["--tasks_dir", str(TASKS), "--output_dir", str(tmp_path)]) == 0
    for name in ("train.jsonl", "heldout.jsonl", "split_manifest.json"):
        written = (ROOT / "terminal-rl/data" / name).read_text()
        assert (tmp_path / name).read_text() == written, (
            "python -m terminal_rl.convert ... --output_dir terminal-rl/data"
        )


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_describes_itself_and_rejects_another_environment(script: str) -> None:
    assert f"bash {script}" in bash(script, "--help").stdout
    refused = bash(script, ENV_TYPE="gui", DRY_RUN="1")
    assert refused.returncode == 2 and "ENV_TYPE=gui: this script trains in terminals" in refused.stderr


def test_a_run_without_its_tasks_is_rejected_before_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("terminal_rl.generate.require_sandbox", lambda: None)
    assert start(TerminalFlags(tasks_dir=str(tmp_path)), {}) == [] == start(TerminalFlags(), {})
    with pytest.raises(ConfigError, match=r"DATASET_DIR.* is not a folder"):
        start(TerminalFlags(tasks_dir=str(tmp_path / "none")), {})
