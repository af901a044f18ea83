"""Grades a patch: policy, a fresh copy of the broken repository, the tests that decide."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from slime.sandbox import Workspace
from swe_rl.checkout import GIT, GIT_SECONDS, Verdicts, checkout, in_box, run_tests, run_tests_on_image
from swe_rl.instance import Instance
from swe_rl.logs import passed_of
from swe_rl.patch import PatchPolicy

TEST_SECONDS = 300.0
NOT_APPLIED = 97  # exit code of the grader's own command


@dataclass(frozen=True)
class Grade:
    """What became of a patch.

    Attributes:
        resolved: every test of FAIL_TO_PASS and PASS_TO_PASS passed.
        reason: "resolved", "policy", "does not apply", "tests failed" or "no verdict".
        detail: one line. fixed: tests of FAIL_TO_PASS that pass. broken: of PASS_TO_PASS that do not.
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
    """Tries patches in fresh copies. Runs nothing of the agent's but its patch.

    Attributes:
        policy: what a patch may not touch. seconds: of the tests.
    """

    policy: PatchPolicy = field(default_factory=PatchPolicy)
    seconds: float = TEST_SECONDS

    def grade(self, instance: Instance, patch: str) -> Grade:
        """The verdict; a patch whose tests hang, crash or end early is not resolved.

        Raises:
            ConfigError, DataError: the instance cannot be graded here. SandboxError: a box did not come up.
        """
        complaint = self.policy.complaint(patch, frozenset(instance.test_files))
        if complaint:
            return Grade(False, "policy", complaint)
        with contextlib.closing(checkout(instance, for_agent=False)) as fresh:
            if fresh.image is not None:
                return self._on_image(instance, fresh, patch)
            first = _applying(fresh, {"the patch": patch, "the patch of tests": instance.test_patch})
            if not instance.fail_to_pass:
                return self._by_script(instance, fresh, first)
            tests = [*instance.fail_to_pass, *instance.pass_to_pass]
            verdicts = run_tests(fresh, tests, self.seconds, first)
            if verdicts.exit_code == NOT_APPLIED:
                return Grade(False, "does not apply", verdicts.problem)
            return graded(instance, verdicts)

    def _on_image(self, instance: Instance, fresh: Workspace, patch: str) -> Grade:
        """A script of the row brings the patch of tests itself."""
        patches = {
            "the patch": patch,
            "the patch of tests": "" if instance.eval_script else instance.test_patch,
        }
        applied = in_box(_applying(fresh, patches), GIT_SECONDS, fresh, host=True)
        if applied.exit_code != 0:
            return Grade(False, "does not apply", applied.error or applied.output[-300:])
        if not instance.fail_to_pass:
            return self._by_script(instance, fresh, "true")
        return graded(instance, run_tests_on_image(instance, fresh, self.seconds))

    def _by_script(self, instance: Instance, fresh: Workspace, first: str) -> Grade:
        fresh.write(".eval.sh", instance.eval_script.encode())
        done = in_box(f"{{ {first}; }} && bash .eval.sh", self.seconds, fresh)
        if done.error or done.exit_code == NOT_APPLIED:
            return Grade(
                False, "no verdict" if done.error else "does not apply", done.error or done.output[-300:]
            )
        detail = done.output.strip().rpartition("\n")[2][:200]
        return Grade(done.exit_code == 0, "resolved" if done.exit_code == 0 else "tests failed", detail)


def _applying(workspace: Workspace, patches: dict[str, str]) -> str:
    """The command that applies them, one after the other; it ends with NOT_APPLIED where one does not."""
    steps = ["true"]
    for number, (name, patch) in enumerate(patches.items()):
        if patch.strip():
            workspace.write(f".patches/{number}", patch.encode())
            steps.append(
                f"{GIT} apply --whitespace=nowarn .patches/{number} || {{ echo '{name}'; exit {NOT_APPLIED}; }}"
            )
    return "; ".join([*steps, "rm -rf .patches"])


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
