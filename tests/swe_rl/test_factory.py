from __future__ import annotations

from pathlib import Path

import pytest

from slime.errors import DataError
from swe_rl.check import patches
from swe_rl.factory.make import candidates, instances
from swe_rl.grade import Grader


def test_only_the_packages_own_code_is_broken(repository: Path) -> None:
    (repository / "docs").mkdir()
    (repository / "docs" / "conf.py").write_text("def f(a, b):\n    return a + b\n")
    assert {one.file for one in candidates(repository)} == {"calc.py"}


@pytest.mark.usefixtures("environments")
def test_instances_of_a_package_fail_its_tests_and_are_repaired_by_their_patch(
    repository: Path,
) -> None:
    made = list(instances(str(repository), 1, seed=1, seconds=60))
    assert len(made) == 1
    for instance in made:
        gold = next(patch for name, patch in patches(instance) if name == "gold")
        assert Grader().grade(instance, gold).resolved
        assert "test_" not in instance.problem_statement


@pytest.mark.usefixtures("environments")
def test_a_package_whose_tests_fail_is_rejected(repository: Path) -> None:
    (repository / "tests" / "test_calc.py").write_text("import nothing_here\n")
    with pytest.raises(DataError, match="its tests do not pass here"):
        list(instances(str(repository), 1, seed=1, seconds=60))
