"""Runs a task's tests on a workspace in a fresh sandbox, after the agent's sandbox has ended."""

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
GRACE = 10.0  # seconds after its time limit in which the runner must report
LONGEST_REPORT = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """Result of one episode.

    Attributes:
        passed, total: numbers of tests; a task is solved only if all pass.
        failures: reason for each failed test, by name.
        late: the tests exceeded their time limit.
        silent: test.sh has ended without writing a valid reward.
        rewards: rewards of a test.sh, by name; it counts as one test.
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
    """Runs tests/test_outputs.py, or test.sh, on the workspace, in which no process may run any more.

    If the runner ends early after it has started, programs in the workspace have ended it; so all tests fail.

    Raises:
        SandboxError: the sandbox did not start, which no agent can cause.
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
            raise SandboxError("the tests did not start in their sandbox") from error
        if not (_line(box, key, START_SECONDS) or {}).get("ready"):
            raise SandboxError(f"the tests did not start in their sandbox (exit code {box.exit_code(1.0)})")
        box.busy_since = time.monotonic()
        outcome = _line(box, key, task.test_seconds + GRACE)
        if outcome is None:
            reason, code = box.over, box.exit_code(1.0)
            late = reason is None and code is None
            if late:
                reason = f"not done after {task.test_seconds:g} s, and without a report"
            return Verdict(
                0, total, (reason or f"a program ended the tests' process (exit code {code})",), late=late
            )
    return _read(outcome, task) if task.test_names else _read_script(outcome, task)


def _runner(task: TaskFolder, tests: Workspace, workspace: Workspace) -> Box:
    read_only = {**read_only_of(workspace), tests.path: "/tests"}
    program = [*worker_python(workspace.image), "-I", "-c", RUNNER.read_text()]
    variables = {"LD_PRELOAD": "", **task.test_variables}  # an image's value is for its own programs
    scratch = () if task.test_names else ("/logs/verifier",)
    return Box(program, LIMITS, read_only, variables, workspace, scratch, workspace.image)


def _line(box: Box, key: str, seconds: float) -> dict[str, Any] | None:
    try:
        content = json.loads(box.read_line(seconds, LONGEST_REPORT) or b"")
    except ValueError:
        return None
    return content if isinstance(content, dict) and content.get("key") == key else None


def _read(outcome: dict[str, Any], task: TaskFolder) -> Verdict:
    """Returns the verdict of a report; tests that are missing in the report have failed."""
    names, results = task.test_names, dict[str, str | None](outcome["results"])
    failures = [f"{name}: {reason}" for name, reason in results.items() if reason is not None]
    failures += [f"{name}: not run" for name in names if name not in results]
    passed = sum(name in results and results[name] is None for name in names)
    return Verdict(passed, len(names), tuple(failures), bool(outcome["late"]))


def _read_script(outcome: dict[str, Any], task: TaskFolder) -> Verdict:
    """Returns the verdict of a test.sh. A reward file that tests/ does not mention is ignored, because the agent's
    programs may have written it."""
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
    """Returns the verdict of `run_tests`; no test passes if an input of the task was changed. If the tests time out
    or give no reward, they are repeated on the initial workspace to find the cause. If they finish there, the agent's
    changes are the cause, and the task is failed.

    Raises:
        EnvironmentAway: they time out or give no reward there either, so this machine or the task is at fault.
    """
    if changed := changed_input(task.inputs, workspace, fresh):
        return Verdict(0, len(task.test_names) or 1, (f"inputs: {changed} was changed",))
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
