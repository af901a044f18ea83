"""Grades a patch: checks the policy, then runs the deciding tests in a fresh copy of the broken repository."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slime.sandbox import Workspace
from swe_rl import images
from swe_rl.changes import Entry, any_named, complaint_of, entries_of, reaching
from swe_rl.checkout import (
    GIT,
    GIT_SECONDS,
    Verdicts,
    checkout,
    in_box,
    run_script,
    run_tests,
    run_tests_on_image,
)
from swe_rl.instance import Instance
from swe_rl.logs import files_of_tests, passed_of
from swe_rl.patch import PatchPolicy, files_of

TEST_SECONDS = 300.0
PATCHES = ".patch-"
NOT_APPLIED = 97  # exit code of the grader's own command if the patch does not apply


@dataclass(frozen=True)
class Grade:
    """The grade of a patch.

    Attributes:
        resolved: every test of FAIL_TO_PASS and PASS_TO_PASS passed.
        reason: "resolved", "policy", "does not apply", "tests failed" or "no verdict".
        detail: one line of explanation.
        fixed: tests of FAIL_TO_PASS that pass.
        broken: tests of PASS_TO_PASS that do not.
    """

    resolved: bool
    reason: str
    detail: str = ""
    fixed: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "resolved": self.resolved,
            "reason": self.reason,
            "detail": self.detail,
            "fixed": len(self.fixed),
            "broken": list(self.broken[:20]),
        }


@dataclass(frozen=True)
class Grader:
    """Tests patches in fresh copies. It uses nothing of the agent's but its patch.

    Attributes:
        policy: files that a patch may not change.
        seconds: time limit of the tests.
    """

    policy: PatchPolicy = field(default_factory=PatchPolicy)
    seconds: float = TEST_SECONDS

    def grade(self, instance: Instance, patch: str) -> Grade:
        """Returns the verdict; a patch whose tests hang, crash or end early is not resolved.

        Raises:
            ConfigError, DataError: the instance cannot be graded here.
            SandboxError: a sandbox did not start.
        """
        test_files = tests_of(instance)
        complaint = self.policy.complaint(patch, test_files)
        if complaint:
            return Grade(False, "policy", complaint)
        with contextlib.closing(checkout(instance, for_agent=False)) as fresh:
            before = entries_of(fresh)
            done = in_box(_applying(fresh, patch), GIT_SECONDS, fresh, host=True)
            if done.exit_code != 0:
                return Grade(False, "does not apply", done.error or done.output[-300:])
            if complaint := self._complaint_of(instance, fresh, before, test_files):
                return Grade(False, "policy", complaint)
            return self._tested(instance, fresh)

    def _complaint_of(
        self, instance: Instance, fresh: Workspace, before: Mapping[str, Entry], test_files: frozenset[str]
    ) -> str | None:
        """Returns why the changes of the patch to the files are rejected; None if they are accepted."""
        installed = images.installed_in(fresh)
        if complaint := complaint_of(self.policy, before, fresh, test_files, installed):
            return complaint
        named = any_named(fresh, before) if self.policy.machinery and self.policy.configuration else {}
        if not named:
            return None
        with contextlib.closing(checkout(instance, for_agent=False)) as base:
            return reaching(named, base)

    def _tested(self, instance: Instance, fresh: Workspace) -> Grade:
        """Runs the deciding tests, or the row's script, which on an image applies the test patch itself."""
        tests_patch = "" if fresh.image is not None and instance.eval_script else instance.test_patch
        first = _applying(fresh, tests_patch) if tests_patch.strip() else "true"
        by_script = not instance.fail_to_pass
        if first != "true" and (fresh.image is not None or by_script):
            applied = in_box(first, GIT_SECONDS, fresh, host=True)
            if applied.exit_code != 0:
                return Grade(
                    False, "does not apply", applied.error or f"the patch of tests: {applied.output[-300:]}"
                )
            first = "true"
        if by_script:
            return self._by_script(instance, fresh)
        if fresh.image is not None:
            return graded(instance, run_tests_on_image(instance, fresh, self.seconds))
        verdicts = run_tests(fresh, [*instance.fail_to_pass, *instance.pass_to_pass], self.seconds, first)
        if verdicts.exit_code == NOT_APPLIED:
            return Grade(False, "does not apply", verdicts.problem)
        return graded(instance, verdicts)

    def _by_script(self, instance: Instance, fresh: Workspace) -> Grade:
        """Returns the result by the script's exit code; if it runs pytest, only a complete run counts."""
        done, verdicts = run_script(fresh, instance.eval_script, self.seconds)
        if done.error:
            return Grade(False, "no verdict", done.error)
        if verdicts is not None and not verdicts.ended:
            return Grade(False, "no verdict", verdicts.problem)
        detail = done.output.strip().rpartition("\n")[2][:200]
        return Grade(done.exit_code == 0, "resolved" if done.exit_code == 0 else "tests failed", detail)


def tests_of(instance: Instance) -> frozenset[str]:
    """Returns the paths of deciding tests that do not have the name of a test file."""
    named = files_of_tests((*instance.fail_to_pass, *instance.pass_to_pass)) or []
    return frozenset((*instance.test_files, *files_of(instance.test_patch), *named))


def _applying(workspace: Workspace, patch: str) -> str:
    """Returns the command that applies a patch; it exits with NOT_APPLIED if the patch does not apply."""
    name = f"{PATCHES}{secrets.token_hex(8)}"
    workspace.write(name, patch.encode())
    return f"{GIT} apply --whitespace=nowarn {name} || exit {NOT_APPLIED}; rm -f {name}"


def graded(instance: Instance, verdicts: Verdicts) -> Grade:
    if not verdicts.ended:
        return Grade(False, "no verdict", verdicts.problem)
    passed = passed_of(verdicts.outcomes, loose=bool(instance.image))
    fixed = tuple(test for test in instance.fail_to_pass if test in passed)
    broken = tuple(test for test in instance.pass_to_pass if test not in passed)
    if len(fixed) == len(instance.fail_to_pass) and not broken:
        return Grade(True, "resolved", "", fixed)
    missing = [test for test in instance.fail_to_pass if test not in fixed]
    return Grade(False, "tests failed", f"{(missing or broken)[0]} does not pass", fixed, broken)
