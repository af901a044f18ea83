"""What a workspace is worth: the task's tests in a fresh box, after the agent's has ended."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime.agents.sandbox import Box, Workspace
from slime.agents.sandbox.command import box_python
from slime.agents.sandbox.folders import TooLarge
from slime.errors import EnvironmentAway, SandboxError
from terminal_rl.system import LIMITS, READ_ONLY

RUNNER = Path(__file__).with_name("boxed_tests.py")
START_SECONDS = 60.0
GRACE = 10.0  # seconds in which the runner reports after its time is over
LONGEST_REPORT = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """Of one episode.

    Attributes:
        passed, total: tests. Fractions are kept; only all of them solve a task.
        failures: NAME: reason, of each test that did not pass.
        late: the tests did not end in time.
    """

    passed: int
    total: int
    failures: tuple[str, ...] = ()
    late: bool = False

    @property
    def accuracy(self) -> float:
        return self.passed / self.total

    @property
    def solved(self) -> bool:
        return self.passed == self.total


def run_tests(tests: Path, names: Sequence[str], workspace: Workspace, seconds: float) -> Verdict:
    """Runs tests/test_outputs.py on the workspace, in which nothing may run any more.

    What ends the runner after it has begun is a program in the workspace, so it is a failure of all tests.

    Raises:
        SandboxError: the box did not come up, which nobody's work is to blame for.
    """
    try:
        workspace.check_size()
    except TooLarge as error:
        return Verdict(0, len(names), (f"workspace: {error}",))
    try:
        copied = Workspace(tests, place="/tests")
    except OSError as error:
        raise EnvironmentAway(f"the tests could not be copied: {error}") from error
    with copied, _runner(copied, workspace) as box:
        key = secrets.token_hex(16)
        try:
            box.send(json.dumps({"key": key, "seconds": seconds}).encode() + b"\n")
        except BrokenPipeError as error:
            raise SandboxError("the tests did not start in their box") from error
        if not (_line(box, key, START_SECONDS) or {}).get("ready"):
            raise SandboxError(f"the tests did not start in their box (exit code {box.exit_code(1.0)})")
        box.busy_since = time.monotonic()
        said = _line(box, key, seconds + GRACE)
        if said is None:
            ended = box.over or f"what the tests ran on ended them (exit code {box.exit_code(1.0)})"
            return Verdict(0, len(names), (ended,), late=box.over is None and box.exit_code() is None)
    return _read(said, names)


def _runner(tests: Workspace, workspace: Workspace) -> Box:
    python, _ = box_python()
    read_only = {**READ_ONLY, tests.path: "/tests"}
    return Box([python, "-I", "-c", RUNNER.read_text()], LIMITS, read_only, workspace=workspace)


def _line(box: Box, key: str, seconds: float) -> dict[str, Any] | None:
    try:
        found = json.loads(box.read_line(seconds, LONGEST_REPORT) or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("key") == key else None


def _read(said: dict[str, Any], names: Sequence[str]) -> Verdict:
    """A test that is not in the report has not passed."""
    results: dict[str, str | None] = dict(said["results"])
    failures = [f"{name}: {reason}" for name, reason in results.items() if reason is not None]
    failures += [f"{name}: not run" for name in names if name not in results]
    passed = sum(name in results and results[name] is None for name in names)
    return Verdict(passed, len(names), tuple(failures), bool(said["late"]))


def judge(
    tests: Path, names: Sequence[str], workspace: Workspace, fresh: Workspace, seconds: float
) -> Verdict:
    """`run_tests`; where they do not end in time, it is found out whose fault that is: the same tests run on the
    workspace as it was before the agent came. If they end there, what the agent did hangs them, and the task is failed.

    Raises:
        EnvironmentAway: they do not end there either: this machine is too slow, or the task is.
    """
    found = run_tests(tests, names, workspace, seconds)
    if found.late and run_tests(tests, names, fresh, seconds).late:
        raise EnvironmentAway(
            f"the tests in {tests} do not end within {seconds:g} s on an untouched workspace either"
        )
    return found
