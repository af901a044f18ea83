"""Tests tasks whose repository is in a container image: the files visible to the agent, and the grading of its
patch."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.agents import Action, Task, ToolCall
from slime.errors import DataError
from swe_rl.check import grades
from swe_rl.checkout import agents_box, checkout, commit, in_box, patch_of
from swe_rl.environment import SUBMIT, SweEnvironment
from swe_rl.grade import Grader
from swe_rl.images import image_name
from swe_rl.instance import Instance, to_instance
from swe_rl.logs import outcomes_of_log, passed_of
from tests.slime.sandbox.images import entry, open_folder, tar_of
from tests.swe_rl.conftest import BUG, CALC, TESTS
from tests.swe_rl.repository_images import CONDA, image_of_repository

pytestmark = pytest.mark.usefixtures("environments")
BROKEN = BUG.apply(CALC)
OLD_TESTS = TESTS.replace("total([1, 2]) == 3", "total([]) == 0")


def patch_from(name: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}")
    return f"diff --git a/{name} b/{name}\n{''.join(lines)}"


TEST_PATCH = patch_from("tests/test_calc.py", OLD_TESTS, TESTS)
REPAIR = "sed -i 's/result - number/result + number/' calc.py"
GOLD = patch_from("calc.py", BROKEN, CALC)
TEST = "tests/test_calc.py::test_"
SUITE = """import unittest
from calc import largest, total


class Sums(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2]), 3)

    def test_largest(self):
        self.assertEqual(largest([1, 5]), 5)
"""


@pytest.fixture(scope="module")
def images(environments: None) -> Iterator[dict[str, str]]:
    """Yields archives of images in the layouts of SWE-bench and R2E."""
    before = os.environ.get("SLIME_IMAGE_DIR")
    with open_folder() as folder:
        os.environ["SLIME_IMAGE_DIR"] = str(folder / "cache")
        files = {
            "calc.py": BROKEN,
            "tests/test_calc.py": OLD_TESTS,
            ".gitignore": "*.so\n",
            "suite.py": SUITE,
        }
        bench = image_of_repository(folder / "bench", {**files, "built.so": "built"}, CONDA)
        hidden = {"r2e_tests/__init__.py": "", "r2e_tests/test_1.py": TESTS}
        script = {"run_tests.sh": ".venv/bin/python -W ignore -m pytest -rA r2e_tests\n", "calc.py": BROKEN}
        r2e = image_of_repository(folder / "r2e", script, "testbed/.venv", hidden)
        yield {"bench": str(bench), "r2e": str(r2e)}
    os.environ.pop("SLIME_IMAGE_DIR")
    if before is not None:
        os.environ["SLIME_IMAGE_DIR"] = before


@pytest.fixture
def bench(images: dict[str, str]) -> Instance:
    row = {
        "instance_id": "calc__calc-1",
        "repo": "calc/calc",
        "base_commit": "0",
        "image_name": images["bench"],
        "problem_statement": "total([1, 2]) is -3",
        "FAIL_TO_PASS": json.dumps([f"{TEST}total"]),
        "PASS_TO_PASS": json.dumps([f"{TEST}no_numbers", f"{TEST}largest"]),
        "patch": GOLD,
        "test_patch": TEST_PATCH,
        "test_files": ["tests/test_calc.py"],
    }
    return to_instance(row, "row 1")


def patch_by(instance: Instance, command: str) -> str:
    with contextlib.closing(checkout(instance, for_agent=True)) as work:
        commit(instance, work)
        assert agents_box(command, 30, work).error is None
        return patch_of(instance, work)


def test_only_the_repair_of_a_swe_bench_row_is_resolved(bench: Instance) -> None:
    assert grades(bench) == {
        "gold": "resolved",
        "empty": "policy",
        "tests edited": "policy",
        "tests edited, no policy": "does not apply",
    }
    wrong = patch_by(bench, f"{REPAIR}; sed -i 's/return max/return min/' calc.py")
    grade = Grader().grade(bench, wrong)
    assert (grade.reason, grade.broken) == ("tests failed", (f"{TEST}largest",))


def test_an_agent_works_in_the_images_environment_without_history_and_tests(bench: Instance) -> None:
    with contextlib.closing(checkout(bench, for_agent=True, place="/elsewhere")) as work:
        commit(bench, work)
        said = agents_box(
            "pwd; python -c 'import sys; print(sys.prefix)'; ls; git --version", 60, work
        ).output
        assert (
            said.startswith(f"/testbed\n/{CONDA}\nbuilt.so\ncalc.py\nsuite.py\ntests\n")
            and "not found" in said
        )
        assert "test_calc" not in agents_box("ls tests", 60, work).output
        assert (
            in_box("git log --all --oneline | wc -l; git status --short", 60, work, host=True).output == "1\n"
        )
        agents_box("touch new.so; mkdir -p .venv/x; touch .venv/x/y __init__.py", 60, work)
        patch = patch_of(bench, work)
    assert patch.count("diff --git") == 1 and "__init__.py" in patch


def test_a_patch_that_ends_the_interpreter_or_imitates_verdicts_is_not_resolved(bench: Instance) -> None:
    printed = f"print('PASSED {TEST}total'); print('PASSED {TEST}largest'); print('PASSED {TEST}no_numbers')"
    for lines in (
        "import os; os._exit(0)",
        f"{printed}; import os; os._exit(0)",
        f"{printed}; raise SystemExit(0)",
    ):
        grade = Grader().grade(bench, patch_by(bench, f'echo "{lines}" >> calc.py'))
        assert not grade.resolved, grade


def test_a_rows_script_applies_the_test_patch_and_runs_the_tests(bench: Instance) -> None:
    script = (
        "#!/bin/bash\nset -uxo pipefail\nsource /opt/miniconda3/bin/activate\nconda activate testbed\ncd /testbed\n"
        "sed -i 's/total(\\[\\]) == 0/total([1, 2]) == 3/' tests/test_calc.py\npytest -rA tests/test_calc.py\ntrue\n"
    ).replace("\npytest", "\npython -m pytest")
    row = dataclasses.replace(bench, eval_script=script)
    assert Grader().grade(row, patch_by(row, REPAIR)).reason == "resolved"
    assert Grader().grade(row, patch_by(row, "echo '# nothing' >> calc.py")).reason == "tests failed"


def test_results_of_other_runners_are_read_from_the_scripts_output(bench: Instance) -> None:
    row = dataclasses.replace(
        bench,
        fail_to_pass=("test_total (suite.Sums.test_total)",),
        pass_to_pass=("test_largest (suite.Sums.test_largest)",),
        eval_script="python -m unittest -v suite\ntrue\n",
    )
    version = "import sys; print(sys.version_info >= (3, 11))"
    with contextlib.closing(checkout(row, for_agent=True)) as work:
        # before Python 3.11, unittest prints test ids without the function's name at the end
        if in_box(f'python -c "{version}"', 30, work).output != "True\n":
            row = dataclasses.replace(row, fail_to_pass=("test_total (suite.Sums)",), pass_to_pass=())
    assert Grader().grade(row, patch_by(row, REPAIR)).reason == "resolved"
    assert Grader().grade(row, patch_by(row, "echo '# nothing' >> calc.py")).reason == "tests failed"
    with pytest.raises(DataError, match="no eval_script says how they run"):
        Grader().grade(dataclasses.replace(row, eval_script=""), patch_by(row, REPAIR))


def test_r2e_rows_use_their_images_tests_which_are_hidden_from_the_agent(
    images: dict[str, str],
) -> None:
    row = to_instance(
        {
            "docker_image": images["r2e"],
            "commit_hash": "abc",
            "problem_statement": "total([1, 2]) is -3",
            "expected_output_json": json.dumps(
                {"test_total": "PASSED", "test_largest": "PASSED", "x": "FAILED"}
            ),
        },
        "row 1",
    )
    with contextlib.closing(checkout(row, for_agent=True)) as work:
        commit(row, work)
        said = agents_box("ls -A; ls /r2e_tests; python -c 'import sys; print(sys.prefix)'", 60, work).output
        assert said == ".git\n.venv\ncalc.py\n/testbed/.venv\n"
    repaired = patch_by(row, f"{REPAIR}; touch .venv/x")
    assert repaired.count("diff --git") == 1
    assert Grader().grade(row, repaired).reason == "resolved"
    assert Grader().grade(row, patch_by(row, "echo '# nothing' >> calc.py")).reason == "tests failed"


async def test_an_episode_on_an_image_ends_with_the_verdict_on_its_patch(bench: Instance) -> None:
    environment = SweEnvironment()
    await environment.reset(Task("", metadata={"instance": bench.to_row()}))
    try:
        for command in ("cat calc.py", REPAIR, f"echo {SUBMIT}"):
            seen = await environment.step(Action("", (ToolCall("bash", {"command": command}),)))
        outcome = await environment.evaluate()
    finally:
        await environment.close()
    assert seen.done and outcome.solved and outcome.details["exit_status"] == "submitted"


def test_an_image_without_a_repository_is_refused(images: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(tar_of((entry("etc/x"), b"")))
    row = Instance("a", "b", ("t::t",), (), image=str(tmp_path / "x.tar"))
    with pytest.raises(DataError, match="neither /testbed nor a working folder"):
        checkout(row, for_agent=True)
    with pytest.raises(DataError, match="holds the repository before its bug"):
        checkout(dataclasses.replace(row, image="jyangballin/swesmith.x86_64.a"), for_agent=True)


@pytest.mark.parametrize(
    ("row", "source", "name"),
    [
        ({"image_name": "own/image"}, "", "own/image"),
        ({"environment_setup_commit": "1"}, "", "docker.io/swebench/sweb.eval.x86_64.a_1776_b-1:latest"),
        ({}, "x/SWE-Gym", "docker.io/xingyaoww/sweb.eval.x86_64.a_s_b-1:latest"),
        (
            {"environment_setup_commit": "1"},
            "x/SWE-Gym",
            "docker.io/xingyaoww/sweb.eval.x86_64.a_s_b-1:latest",
        ),
        ({"folder": "/somewhere"}, "", ""),
        ({"repo": "idna==3.10"}, "", ""),
    ],
)
def test_rows_without_an_image_use_the_published_one(row: dict[str, str], source: str, name: str) -> None:
    usual = {"instance_id": "A__b-1", "repo": "a/b", "base_commit": "0"}
    assert image_name({**usual, **row}, source) == name


def test_test_names_in_logs_match_pytests_ids() -> None:
    outcomes = {
        "a.py::t[1 x]": "passed",
        "a.py::t[1 y]": "failed",
        "a.py::T::u": "passed",
        "b.py::T::v[0]": "passed",
    }
    assert passed_of(outcomes) == {"a.py::t[1 x]", "a.py::T::u", "b.py::T::v[0]"}
    loose = passed_of(outcomes, loose=True)
    assert {"T.u", "T.v[0]"} <= loose and "a.py::t[1" not in loose


def test_output_of_test_runners_is_parsed() -> None:
    log = """\x1b[32mPASSED\x1b[0m a.py::t
FAILED a.py::u - assert 1 == 2
test_x (app.tests.T) ... ok
Says what it does. ... ok
test_y (app.tests.T) ... FAIL
test_z (app.tests.T) ... skipped 'no'
test_sum ok
test_integral F
"""
    passed = {name for name, outcome in outcomes_of_log(log).items() if outcome == "passed"}
    assert passed == {"a.py::t", "test_x (app.tests.T)", "Says what it does.", "test_sum"}
    assert outcomes_of_log("PASSED a\nFAILED a\nPASSED a\n") == {"a": "failed"}
