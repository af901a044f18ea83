"""A small repository with tests, and pytest for sandboxes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_rl.factory.mutations import Mutation
from swe_rl.instance import Instance

CALC = '''"""Sums."""


def total(numbers):
    result = 0
    for number in numbers:
        result = result + number
    return result


def largest(numbers):
    if not numbers:
        raise ValueError("no numbers")
    return max(numbers)
'''
TESTS = """import pytest
from calc import largest, total


def test_total():
    assert total([1, 2]) == 3


def test_no_numbers():
    with pytest.raises(ValueError):
        largest([])


def test_largest():
    assert largest([1, 5, 2]) == 5
"""
BUG = Mutation("calc.py", 7, 17, "result + number", "result - number", "arithmetic", "total")


@pytest.fixture(scope="session")
def environments() -> Iterator[None]:
    """Provides pytest for the Python of sandboxes, in a folder that another user may enter."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    folder = tempfile.mkdtemp(prefix="swe-")
    os.chmod(folder, 0o755)
    before = os.environ.get("SWE_ENV_DIR")
    os.environ["SWE_ENV_DIR"] = folder
    yield
    os.environ.pop("SWE_ENV_DIR")
    if before is not None:
        os.environ["SWE_ENV_DIR"] = before
    shutil.rmtree(folder)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "calc"
    (folder / "tests").mkdir(parents=True)
    (folder / "calc.py").write_text(CALC)
    (folder / "tests" / "test_calc.py").write_text(TESTS)
    return folder


@pytest.fixture
def instance(repository: Path) -> Instance:
    test = "tests/test_calc.py::test_"
    return Instance(
        "calc-total",
        "total([1, 2]) is -3",
        (f"{test}total",),
        (f"{test}no_numbers", f"{test}largest"),
        str(repository),
        bug=BUG,
        test_files=("tests/test_calc.py",),
    )
