"""The verdict on a workspace: runs the task's tests in a fresh sandbox, after the agent's has ended."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime.errors import EnvironmentAway, SandboxError
from slime.sandbox import Box, Workspace
from slime.sandbox.command import worker_python
from slime.sandbox.folders import TooLarge
from terminal_rl.harbor_rewards import NoReward, reward_of, rewards_of
from terminal_rl.inputs import changed_input, drop_programs_of_git
from terminal_rl.system import LIMITS, read_only_of
from terminal_rl.task_folder import SCRIPT, TESTS, TaskFolder

RUNNER = Path(__file__).with_name("boxed_tests.py")
START_SECONDS = 60.0
GRACE = 10.0  # seconds in which the runner reports after its time is over
LONGEST_REPORT = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """Result of one episode.

    Attributes:
        passed, total: tests. Fractions are kept; only all of them solve a task.
        failures: NAME: reason, of each test that did not pass.
        late: the tests did not end in time. silent: a test.sh has ended, and wrote no reward that can be read.
        rewards: what a test.sh wrote, by name; it is one test.
    """

    passed: int
    total: int
    failures: tuple[str, ...] = ()
    late: bool = False
    silent: bool = False
    rewards: Mapping[str, float] | None = None

    @property
    def accuracy(self) -> float:
        return self.passed / self.total if self.rewards is None else reward_of(self.rewards)

    @property
    def solved(self) -> bool:
        return self.passed == self.total


def run_tests(task: TaskFolder, workspace: Workspace) -> Verdict:
    """Runs tests/test_outputs.py, or test.sh, on the workspace, in which nothing may run any more.

    What ends the runner after it has begun is a program in the workspace, so it is a failure of all tests.

    Raises:
        SandboxError: the box did not come up, which no agent can cause.
    """
    total = len(task.test_names) or 1
    try:
        workspace.check_size()
    except TooLarge as error:
        return Verdict(0, total, (f"workspace: {error}",))
    try:
        drop_programs_of_git(workspace)
        source = (task.tests / TESTS).read_text() if task.test_names else ""
        copied = Workspace(task.tests, place="/tests")
        if task.test_names:
            for name in (TESTS, "__pycache__"):
                copied.remove(name)
        else:
            (copied.path / SCRIPT).chmod(0o755)
    except OSError as error:
        raise EnvironmentAway(f"the tests could not be copied: {error}") from error
    with copied, _runner(task, copied, workspace) as box:
        key = secrets.token_hex(16)
        order = {
            "key": key,
            "seconds": task.test_seconds,
            "script": not task.test_names,
            "source": source,
        }
        try:
            box.send(json.dumps(order).encode() + b"\n")
        except BrokenPipeError as error:
            raise SandboxError("the tests did not start in their box") from error
        if not (_line(box, key, START_SECONDS) or {}).get("ready"):
            raise SandboxError(f"the tests did not start in their box (exit code {box.exit_code(1.0)})")
        box.busy_since = time.monotonic()
        outcome = _line(box, key, task.test_seconds + GRACE)
        if outcome is None:
            ended = box.over or f"what the tests ran on ended them (exit code {box.exit_code(1.0)})"
            return Verdict(0, total, (ended,), late=box.over is None and box.exit_code() is None)
    return _read(outcome, task) if task.test_names else _read_script(outcome, task)


def _runner(task: TaskFolder, tests: Workspace, workspace: Workspace) -> Box:
    read_only = {**read_only_of(workspace), tests.path: "/tests"}
    program = [*worker_python(workspace.image), "-I", "-c", RUNNER.read_text()]
    variables = {"LD_PRELOAD": "", **task.test_variables}  # an image's is for its own programs
    scratch = () if task.test_names else ("/logs/verifier",)
    return Box(program, LIMITS, read_only, variables, workspace, scratch, workspace.image)


def _line(box: Box, key: str, seconds: float) -> dict[str, Any] | None:
    try:
        content = json.loads(box.read_line(seconds, LONGEST_REPORT) or b"")
    except ValueError:
        return None
    return content if isinstance(content, dict) and content.get("key") == key else None


def _read(outcome: dict[str, Any], task: TaskFolder) -> Verdict:
    """A test that is not in the report has not passed."""
    names, results = task.test_names, dict[str, str | None](outcome["results"])
    failures = [f"{name}: {reason}" for name, reason in results.items() if reason is not None]
    failures += [f"{name}: not run" for name in names if name not in results]
    passed = sum(name in results and results[name] is None for name in names)
    return Verdict(passed, len(names), tuple(failures), bool(outcome["late"]))


def _read_script(outcome: dict[str, Any], task: TaskFolder) -> Verdict:
    """A file of rewards of which nothing in tests/ speaks was written by what the agent left."""
    if outcome["late"]:
        return Verdict(0, 1, (f"{SCRIPT}: not done after {task.test_seconds:g} s",), late=True)
    try:
        rewards = rewards_of({name: outcome["files"].get(name) for name in task.reward_files})
    except NoReward as error:
        printed = " ".join(str(outcome["printed"]).split())[-300:]
        return Verdict(0, 1, (f"{SCRIPT}: {error}; it printed: {printed}",), silent=True)
    listing = ", ".join(f"{name} {value:g}" for name, value in rewards.items())
    solved = reward_of(rewards) >= 1.0
    return Verdict(int(solved), 1, () if solved else (f"{SCRIPT}: {listing}",), rewards=rewards)


def judge(task: TaskFolder, workspace: Workspace, fresh: Workspace) -> Verdict:
    """`run_tests`, and no test passes where an input of the task was changed. Where they do not end in time, or give no
    reward, it is found out whose fault that is: the same tests run on the workspace as it was before the agent came. If
    they end there, what the agent did is at fault, and the task is failed.

    Raises:
        EnvironmentAway: they do not end there either: this machine is too slow, or the task is.
    """
    if changed := changed_input(task.inputs, workspace, fresh):
        return Verdict(0, len(task.test_names) or 1, (f"inputs: {changed} is not as it was given",))
    results = run_tests(task, workspace)
    if not (results.late or results.silent):
        return results
    untouched = run_tests(task, fresh)
    if untouched.late:
        raise EnvironmentAway(
            f"the tests in {task.tests} do not end within {task.test_seconds:g} s on an untouched workspace either"
        )
    if untouched.silent:
        raise EnvironmentAway(f"the tests in {task.tests} give no reward: {untouched.failures[0]}")
    return results
