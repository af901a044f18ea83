"""Launch scripts of the GUI track: their plans, and the settings that they reject."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from gui_rl import served
from gui_rl.check import TASKS
from gui_rl.convert import main as convert
from gui_rl.generate import GuiFlags, in_evaluation, start
from slime.arguments import parse_args
from slime.errors import ConfigError
from tests import MODEL, ROOT
from tests.fakes.dry_run import bash, dry

ROWS = str(ROOT / "gui-rl/data/train.jsonl")
SPLITS = {
    "run_gui_rl": "trainer 4 + policy 4 = 8",
    "gui_qwen3vl_8b_rl": "trainer 4 + policy 4 = 8",
    "gui_qwen3vl_8b_prm_rl": "trainer 4 + policy 3 + judge 1 = 8",
}


def arguments(told: str) -> dict[str, tuple[str, str]]:
    """(value, source) by flag."""
    found = re.findall(r"^  (--\S+) +(.*)  \[(.*)\]$", told, re.M)
    return {flag: (value, source) for flag, value, source in found}


@pytest.mark.parametrize("name", SPLITS)
def test_a_dry_run_shows_a_plan_that_fits(name: str) -> None:
    script = f"gui-rl/{name}.sh"
    done = dry(script, PARALLEL_ENVS="7", MAX_STEPS="9", GUI_MAX_STEPS="12", ENV_TYPE="gui")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fits     every part" in done.stdout and SPLITS[name] in done.stdout
    shown = arguments(done.stdout)
    assert shown["--custom-generate-function-path"][0] == "gui_rl.generate.generate"
    assert shown["--parallel-envs"] == ("7", "variable PARALLEL_ENVS")
    assert shown["--gui-max-steps"] == ("12", "variable GUI_MAX_STEPS")
    assert shown["--gui-tasks-dir"][0] == f"{ROOT}/gui-rl/tasks"
    assert shown["--prompt-data"][0] == f"{ROOT}/gui-rl/data/train.jsonl"
    assert shown["--gui-observation-type"][0] == ("screenshot" if "qwen3vl" in name else "a11y_tree")
    assert shown["--prm-enable"][0] == str("prm" in name)
    assert "envs     7 at a time, each at most 150 MiB of memory" in done.stdout
    assert f"{name}.sh" in (ROOT / "gui-rl/README.md").read_text() and os.access(ROOT / script, os.X_OK)


def test_the_evaluation_script_does_not_train() -> None:
    done = dry("gui-rl/gui_qwen3vl_4b_eval.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = arguments(done.stdout)
    assert shown["--debug-rollout-only"][0] == "True" and shown["--eval-interval"][0] == "1"
    assert (shown["--rollout-num-gpus"][0], shown["--actor-num-gpus-per-node"][0]) == ("8", "0")
    assert shown["--eval-prompt-data"][0] == str(["heldout", f"{ROOT}/gui-rl/data/heldout.jsonl"])


@pytest.mark.parametrize("name", [*SPLITS, "gui_qwen3vl_4b_eval"])
def test_a_script_describes_itself_and_rejects_another_environment(name: str) -> None:
    script = f"gui-rl/{name}.sh"
    assert f"bash {script}" in bash(script, "--help").stdout
    refused = bash(script, ENV_TYPE="swe", DRY_RUN="1")
    assert refused.returncode == 2 and "ENV_TYPE=swe: this script trains at screens" in refused.stderr


def test_a_pool_reads_the_tracks_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "require_backend", lambda backend: None)
    monkeypatch.setenv("GUI_COORDINATE_TYPE", "tags")
    monkeypatch.setenv("GUI_SCREEN_WIDTH", "900")
    served._shared.cache_clear()
    one, other = served.environment(), served.environment()
    assert (
        one.settings.unit.tags and one.settings.unit.width == 900 and one.surroundings is other.surroundings
    )
    monkeypatch.setenv("GUI_COORDINATE_TYPE", "polar")
    served._shared.cache_clear()
    with pytest.raises(ConfigError, match="GUI_COORDINATE_TYPE=polar is not one of"):
        served.environment()


def test_evaluations_use_separate_limits_if_set() -> None:
    flags = GuiFlags(
        gui_max_steps=9, gui_eval_max_steps=4, gui_wait_after_reset=2.0, gui_eval_wait_after_reset=0.0
    )
    found = in_evaluation(flags)
    assert (found.gui_max_steps, found.gui_wait_after_reset) == (4, 0.0)
    assert in_evaluation(GuiFlags(gui_max_steps=9)).gui_max_steps == 9


def test_the_prompt_rows_match_the_shipped_tasks(tmp_path: Path) -> None:
    assert convert(["--tasks_dir", str(TASKS), "--output_dir", str(tmp_path)]) == 0
    for name in ("train.jsonl", "heldout.jsonl", "split_manifest.json"):
        written = (ROOT / "gui-rl/data" / name).read_text()
        assert (tmp_path / name).read_text() == written, (
            "python -m gui_rl.convert ... --output_dir gui-rl/data"
        )


def test_a_run_that_cannot_play_episodes_is_rejected_before_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gui_rl.generate.require_backend", lambda backend: None)
    assert start(GuiFlags(gui_tasks_dir=str(tmp_path)), {}) == []
    with pytest.raises(ConfigError, match=r"GUI_TEST_CONFIG_BASE_DIR.* is not a folder"):
        start(GuiFlags(gui_tasks_dir=str(tmp_path / "none")), {})
    monkeypatch.undo()
    monkeypatch.setattr("shutil.which", lambda name: None)
    pytest.importorskip("playwright.async_api")
    with pytest.raises(ConfigError, match="apt-get install chromium"):
        start(GuiFlags(), {})


def test_screenshots_are_rejected_without_a_vision_model_and_engine_support(tmp_path: Path) -> None:
    words = [
        "--hf-checkpoint",
        str(MODEL),
        "--run-dir",
        str(tmp_path),
        "--gui-observation-type",
        "screenshot",
    ]
    words += ["--custom-generate-function-path", "gui_rl.generate.generate", "--prompt-data", ROWS]
    args: Any = parse_args([*words, "--rm-type", "random", "--disable-rewards-normalization"], env={})
    with pytest.raises(ConfigError, match=r"--gui-observation-type screenshot .*these see: qwen3_vl"):
        start(args, {})
    args.rollout_backend = "vllm"
    with pytest.raises(ConfigError, match="vllm accepts no pictures"):
        start(args, {})
