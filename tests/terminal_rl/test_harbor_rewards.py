"""Tests task folders whose own test.sh gives the reward: the result that Harbor's verifier would read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slime.agents import Task
from slime.errors import EnvironmentAway
from slime.sandbox import Shells
from terminal_rl.environment import TerminalEnvironment, TerminalSettings
from terminal_rl.harbor_rewards import NoReward, reward_of, rewards_of
from terminal_rl.system import LIMITS, READ_ONLY
from terminal_rl.task_folder import TaskError, read_task
from terminal_rl.tasks import FolderTask
from terminal_rl.verdict import Verdict

boxes = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
COUNTS = """#!/bin/bash
found=$(grep -c yes done) || found=0
[ "$found" = 3 ] && reward=1 || reward=0.$found
echo $reward > /logs/verifier/reward.txt
"""


def harbor_task(folder: Path, script: str, seconds: float = 20.0, env: str = "", **tests: str) -> Path:
    """Creates a folder as `harbor init --task` does, with this test.sh; `tests` are further files next to it."""
    path = folder / "a-task"
    (path / "environment").mkdir(parents=True)
    (path / "tests").mkdir()
    (path / "environment" / "Dockerfile").write_text("FROM ubuntu:24.04\nWORKDIR /app")
    about = f'schema_version = "1.4"\n[metadata]\n[verifier]\ntimeout_sec = {seconds}\n{env}\n'
    (path / "task.toml").write_text(about)
    (path / "instruction.md").write_text("Write yes three times to /app/done.")
    (path / "tests" / "test.sh").write_text(script)
    for name, text in tests.items():
        (path / "tests" / name.replace("_dot_", ".")).write_text(text)
    return path


def worked(path: Path, script: str) -> Verdict:
    task = FolderTask(read_task(path))
    with task.workspace() as workspace:
        with Shells(workspace, LIMITS, READ_ONLY) as shells:
            shells.execute("main", script, 60.0)
        return task.verdict(workspace)


@pytest.mark.parametrize(
    ("files", "rewards"),
    [
        ({"reward.txt": "1\n"}, {"reward": 1.0}),
        ({"reward.txt": " 0.25 "}, {"reward": 0.25}),
        ({"reward.txt": "0", "reward.json": '{"reward": 0.5, "speed": 2}'}, {"reward": 0.5, "speed": 2.0}),
        ({"reward.json": '{"style": true}'}, {"style": 1.0}),
    ],
)
def test_rewards_are_read_as_harbor_reads_them(files: dict[str, str], rewards: dict[str, float]) -> None:
    assert rewards_of(files) == rewards


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({}, "neither reward.txt nor reward.json"),
        ({"reward.txt": ""}, "reward.txt is empty"),
        ({"reward.txt": "passed"}, "cannot be read"),
        ({"reward.txt": "nan"}, "not finite"),
        ({"reward.json": '{"reward": 1e999}', "reward.txt": "1"}, "not finite"),
        ({"reward.json": '{"reward": "1"}'}, "reward is not a number"),
        ({"reward.json": "[1]"}, "must map names to numbers"),
        ({"reward.json": "{"}, "cannot be read"),
    ],
)
def test_an_invalid_reward_is_reported(files: dict[str, str], complaint: str) -> None:
    with pytest.raises(NoReward, match=complaint):
        rewards_of(files)


def test_the_trained_reward_is_the_named_one_or_the_mean() -> None:
    assert [reward_of({"reward": 0.5, "speed": 2.0}), reward_of({"a": 1.0, "b": 0.5})] == [0.5, 0.75]
    assert [reward_of({"reward": 7.0}), reward_of({"reward": -1.0})] == [1.0, 0.0]


@boxes
async def test_a_tasks_script_determines_the_reward(tmp_path: Path) -> None:
    harbor_task(tmp_path, COUNTS)
    scores = []
    for command in ("true", "echo yes > done", "printf 'yes\\nyes\\nyes\\n' > done"):
        environment = TerminalEnvironment(TerminalSettings(tasks_dir=tmp_path))
        await environment.reset(Task("", metadata={"task_path": "a-task"}))
        assert environment.shells is not None
        environment.shells.execute("main", command)
        outcome = await environment.evaluate()
        await environment.close()
        scores.append((outcome.score, outcome.solved, outcome.details["rewards"]["reward"]))
    assert scores == [(-1.0, False, 0.0), (pytest.approx(-0.8), False, 0.1), (1.0, True, 1.0)]


@boxes
def test_a_script_gets_its_variables_helpers_and_reward_folder(tmp_path: Path) -> None:
    script = "cd /tests && [ $PWD/x = /tests/x ] && HOME=/tmp python3 grade.py"
    grade = """import json, os
texts = {"reward": float(os.environ["GOOD"]), "length": len(open("/app/done").read())}
json.dump(texts, open("/logs/verifier/reward.json", "w"))
"""
    path = harbor_task(tmp_path, script, env='env = {GOOD = "0.5"}', grade_dot_py=grade)
    found = worked(path, "echo yes > done")
    assert found.rewards == {"reward": 0.5, "length": 4.0} and found.accuracy == 0.5 and not found.solved


@boxes
@pytest.mark.parametrize(
    "attack",
    [
        "echo '{\"reward\": 1}' > /logs/verifier/reward.json",
        "kill -9 -1",
        "rm -rf /logs/verifier; mkdir /logs/verifier",
        "rm -f /logs/verifier/reward.txt; ln -s /tests/one /logs/verifier/reward.txt",
    ],
)
def test_programs_left_by_the_agent_cannot_write_rewards(tmp_path: Path, attack: str) -> None:
    """At the worst moment: test.sh reads them after it wrote the reward."""
    script = "echo 0 > /logs/verifier/reward.txt; bash /app/go.sh; true"
    path = harbor_task(tmp_path, script, one="1")
    found = worked(path, f"cat > go.sh <<'END'\n{attack}\nEND")
    assert (found.passed, found.accuracy) == (0, 0.0), found


@boxes
def test_a_script_made_to_hang_or_give_no_reward_by_the_agent_fails_the_task(tmp_path: Path) -> None:
    script = (
        "if [ -e wait ]; then sleep 600; elif [ ! -e broken ]; then echo 0 > /logs/verifier/reward.txt; fi"
    )
    path = harbor_task(tmp_path, script, seconds=1.0)
    assert worked(path, "touch wait").late
    silent = worked(path, "touch broken")
    assert silent.silent and silent.passed == 0 and "wrote neither reward.txt" in silent.failures[0]


@boxes
def test_a_script_without_a_reward_is_not_a_failed_task(tmp_path: Path) -> None:
    path = harbor_task(tmp_path, "# reward.txt is for others\necho no such luck")
    with pytest.raises(EnvironmentAway, match=r"give no reward: .* it printed: no such luck"):
        worked(path, "true")


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("#!/bin/bash\napt-get update\necho 1 > reward.txt", "line 2: apt-get needs the network"),
        (
            "true && curl -LsSf https://example.org/x | sh; echo 1 > reward.txt",
            "line 1: curl needs the network",
        ),
        ("uvx pytest; echo 1 > /logs/verifier/reward.txt", "uvx needs the network"),
        ("echo done", "there is no reward"),
    ],
)
def test_a_script_unsupported_by_sandboxes_is_rejected_in_one_line(
    tmp_path: Path, script: str, complaint: str
) -> None:
    with pytest.raises(TaskError, match=complaint):
        read_task(harbor_task(tmp_path, script))


def test_a_script_may_use_servers_and_programs_of_its_sandbox(tmp_path: Path) -> None:
    script = "# curl https://example.org\ncurl -s http://localhost:80/ || echo 0 > /logs/verifier/reward.txt"
    assert read_task(harbor_task(tmp_path, script)).test_names == ()


def test_a_script_that_only_runs_test_functions_is_replaced_by_our_runner(tmp_path: Path) -> None:
    script = "uvx pytest /tests/test_outputs.py && echo 1 > /logs/verifier/reward.txt"
    path = harbor_task(tmp_path, script, test_outputs_dot_py="def test_it(): pass")
    assert read_task(path).test_names == ("test_it",)


def test_host_variables_are_not_passed_to_a_script(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"KEY of .* requests a variable of this machine"):
        read_task(harbor_task(tmp_path, COUNTS, env='env = {KEY = "${OPENAI_API_KEY}"}'))
