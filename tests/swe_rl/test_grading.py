"""Tests grading of patches of a small repository, in real sandboxes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

import pytest

from slime.agents import Action, Task, ToolCall
from slime.errors import ConfigError, DataError
from swe_rl.check import grades
from swe_rl.checkout import checkout, commit, in_box, patch_of
from swe_rl.environment import SUBMIT, SweEnvironment
from swe_rl.grade import Grader
from swe_rl.instance import Instance
from tests.slime.sandbox.images import open_folder

pytestmark = pytest.mark.usefixtures("environments")
REPAIR = "sed -i 's/result - number/result + number/' calc.py"


def patch_by(instance: Instance, command: str) -> str:
    with contextlib.closing(checkout(instance, for_agent=True)) as work:
        commit(instance, work)
        assert in_box(command, 30, work).error is None
        return patch_of(instance, work)


def test_only_the_repair_is_resolved(instance: Instance) -> None:
    assert grades(instance) == {
        "gold": "resolved",
        "empty": "policy",
        "tests edited": "policy",
        "tests edited, no policy": "does not apply",
        "exit": "no verdict",
        "imitation": "tests failed",
    }


def test_an_agent_cannot_see_the_deciding_tests(instance: Instance) -> None:
    with contextlib.closing(checkout(instance, for_agent=True)) as work:
        commit(instance, work)
        listed = in_box("git log --oneline | wc -l; git ls-files; ls -R", 30, work).output
    assert listed.startswith("1\ncalc.py\n")
    assert "test_calc" not in listed


@pytest.mark.parametrize(
    "trick",
    [
        "rm -rf .git",
        "git commit -qam done --no-verify -c user.name=x || true",
        "printf '*.py -diff\\n' > .gitattributes; rm .gitattributes",
        "git config diff.external /bin/true; git config core.hooksPath /workspace",
        "git rm -q --cached calc.py; echo calc.py > .git/info/exclude",
    ],
)
def test_the_patch_reflects_the_files_despite_changes_to_git(instance: Instance, trick: str) -> None:
    grade = Grader().grade(instance, patch_by(instance, f"{REPAIR}; {trick}; true"))
    assert grade.reason == "resolved", grade


def test_a_repair_that_breaks_something_else_is_not_resolved(instance: Instance) -> None:
    command = f"{REPAIR}; sed -i 's/return max/return min/' calc.py"
    grade = Grader().grade(instance, patch_by(instance, command))
    assert (grade.reason, grade.broken) == ("tests failed", ("tests/test_calc.py::test_largest",))
    assert grade.fixed == instance.fail_to_pass


def test_hanging_tests_are_limited_to_their_own_time(instance: Instance) -> None:
    patch = patch_by(instance, f"{REPAIR}; printf 'while True:\\n    pass\\n' >> calc.py")
    grade = Grader(seconds=2).grade(instance, patch)
    assert grade.reason == "no verdict"
    assert "longer than 2 s" in grade.detail


def test_without_named_tests_the_script_decides(instance: Instance) -> None:
    small = Instance(
        "small", "x is 1", (), (), files={"a.py": "x = 1\n"}, eval_script="grep -qx 'x = 2' a.py"
    )
    assert Grader().grade(small, patch_by(small, "echo 'x = 2' > a.py")).reason == "resolved"
    assert Grader().grade(small, patch_by(small, "echo 'x = 3' > a.py")).reason == "tests failed"
    assert (
        Grader().grade(small, patch_by(small, "echo 'x = 2' > a.py").replace("x = 1", "x = 0")).reason
        == "does not apply"
    )


def test_another_package_version_and_an_image_without_a_container_tool_are_rejected(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert instance.bug is not None
    other = dataclasses.replace(instance, bug=dataclasses.replace(instance.bug, line=8))
    with pytest.raises(DataError, match=r"calc-total: calc\.py, line 8"):
        checkout(other, for_agent=True)
    monkeypatch.setattr("slime.sandbox.images.tools.shutil.which", lambda name: None)
    with (
        open_folder() as folder,
        pytest.raises(ConfigError, match="needs podman or docker, and neither is installed"),
    ):
        monkeypatch.setenv("SLIME_IMAGE_DIR", str(folder))
        checkout(dataclasses.replace(instance, repository="", image="some/image"), for_agent=True)


def by_tool(command: str) -> Action:
    return Action("", (ToolCall("bash", {"command": command}),))


def by_block(command: str) -> Action:
    return Action(f"I look.\n```bash\n{command}\n```")


@pytest.mark.parametrize("act", [by_tool, by_block])
async def test_an_episode_ends_with_the_verdict_on_its_patch(
    instance: Instance, act: Callable[[str], Action]
) -> None:
    environment = SweEnvironment()
    try:
        start = await environment.reset(Task("", metadata={"instance": instance.to_row()}))
        assert start.messages[1]["content"] == instance.problem_statement
        seen = await environment.step(act("cat calc.py; exit 3"))
        assert seen.messages[0]["content"].startswith('<returncode>3</returncode>\n<output>\n"""Sums')
        await environment.step(act(REPAIR))
        assert (await environment.step(act(f"echo {SUBMIT}"))).done
        outcome = await environment.evaluate()
    finally:
        await environment.close()
    assert (outcome.score, outcome.solved) == (1.0, True)
    assert outcome.details["exit_status"] == "submitted"
    assert "result + number" in outcome.details["patch"]


async def test_an_agent_without_commands_changes_nothing(instance: Instance) -> None:
    environment = SweEnvironment()
    try:
        await environment.reset(Task("", metadata={"instance": instance.to_row()}))
        assert (await environment.step(Action("It is line 7."))).done
        outcome = await environment.evaluate()
    finally:
        await environment.close()
    assert (outcome.score, outcome.details["reason"]) == (-1.0, "policy")


async def test_a_task_without_an_instance_is_rejected() -> None:
    with pytest.raises(DataError, match=r"swe_rl\.prompts"):
        await SweEnvironment().reset(Task("", metadata={}))


def test_long_outputs_show_their_start_and_end(instance: Instance) -> None:
    from swe_rl.environment import shown_text

    with contextlib.closing(checkout(instance, for_agent=True)) as work:
        text = shown_text(in_box("seq 100000", 30, work))
    assert len(text) < 10_200
    assert "characters left out" in text
    assert text.endswith("100000\n</output>")
