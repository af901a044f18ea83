"""The scripts of the tiny models print their plan with DRY_RUN=1, and start nothing."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes.dry_run import bash, dry

ENVIRONMENTS = {
    "toolcall": "32 at a time, each at most 512 MiB of memory and 64 MiB of files in memory",
    "terminal": "32 at a time, each at most 512 MiB of memory and 256 MiB of files in a folder",
    "swe": "16 at a time, each at most 1024 MiB of memory and 256 MiB of files in a folder",
    "gui": "8 at a time, each at most 150 MiB of memory and 20 MiB of files in a folder",
    "gui_pixels": "8 at a time, each at most 150 MiB of memory and 20 MiB of files in a folder",
}


@pytest.mark.parametrize("track", ENVIRONMENTS)
def test_a_dry_run_counts_the_environments_and_leaves_nothing(track: str, tmp_path: Path) -> None:
    run, temporary = tmp_path / "run", tmp_path / "temporary"
    temporary.mkdir()
    variables = {"RUN_DIR": str(run), "TMPDIR": str(temporary), "ROLLOUT_ARGS": "--num-rollout 3"}
    done = bash(
        f"{track.partition('_')[0]}-rl/run_tiny_{track}_rl.sh", "--lr", "5e-4", DRY_RUN="1", **variables
    )
    assert done.returncode == 0, done.stderr
    assert f"envs     {ENVIRONMENTS[track]}" in done.stdout and "GiB of disk" in done.stdout
    shown = dict(re.findall(r"^  (--\S+) +(\S.*)$", done.stdout, re.M))
    assert shown["--prompt-data"] == f"{run}/tasks/train.jsonl  [script]"
    assert (
        shown["--num-rollout"] == "3  [variable ROLLOUT_ARGS]" and shown["--lr"] == "0.0005  [command line]"
    )
    assert not run.exists() and not list(temporary.iterdir())


@pytest.mark.parametrize(
    "script", sorted(ROOT.glob("openclaw-*/run_tiny_openclaw_*.sh")), ids=lambda path: path.stem
)
def test_a_dry_run_of_the_tiny_assistant_starts_nothing(script: Path, tmp_path: Path) -> None:
    """One of them with all processes that it starts, the others with this process as the planner."""
    run, start = tmp_path / "run", bash if script.stem == "run_tiny_openclaw_rl" else dry
    with socket.create_server(("127.0.0.1", 0)) as taken:
        variables = {
            "RUN_DIR": str(run),
            "HOST": "127.0.0.2",
            "ALLOW_NO_KEY": "1",
            "PORT": str(taken.getsockname()[1]),
            "DATA_PATH": __file__,
        }
        words = ["--demo", "--person", "teacher", "--batch-timeout", "5"]
        done = start(str(script.relative_to(ROOT)), *words, DRY_RUN="1", LORA_ARGS="--use-lora", **variables)
    assert done.returncode == 0, done.stderr
    shown = dict(re.findall(r"^  (--\S+) +(\S.*)$", done.stdout, re.M))
    assert shown["--batch-timeout"] == "5.0  [command line]" and shown["--eps-clip-high"] == "0.28  [script]"
    assert shown["--use-lora"] == "True  [variable LORA_ARGS]" and shown["--run-dir"] == f"{run}  [script]"
    assert shown["--host"] == "127.0.0.2  [variable HOST]" and shown["--judge-backend"] == "rules  [script]"
    assert not run.exists()
    for wrong in (["--lr", "-1"], ["--lr"]):
        refused = start(str(script.relative_to(ROOT)), *wrong, DRY_RUN="1", RUN_DIR=str(run))
        assert refused.returncode == 2 and refused.stderr.startswith("error: ") and "--lr" in refused.stderr


def test_a_dry_run_rejects_what_a_run_would_reject(tmp_path: Path) -> None:
    script = "toolcall-rl/run_tiny_toolcall_rl.sh"
    refused = bash(script, "--lr", "-1", DRY_RUN="yes", RUN_DIR=str(tmp_path / "run"))
    assert refused.returncode == 2 and "--lr" in refused.stderr
    assert "give 1 for the plan" in bash(script, DRY_RUN="perhaps").stderr
    for example in ("verifiers_game/run_tiny.sh", "my_method/run_tiny_my_method.sh", "arithmetic/sft.sh"):
        done = bash(f"slime/examples/{example}", DRY_RUN="1", RUN_DIR=str(tmp_path / "run"))
        assert done.returncode == 2 and "no plan" in done.stderr
    assert not (tmp_path / "run").exists()
