"""A method is found by its module or file name."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw.errors import ConfigError
from openclaw.methods.method import Method, Needs

MINE = """
from openclaw.methods.method import Needs, asks
from openclaw.types import Drop

@asks(lambda options: Needs(hint=True))
def mine(turn, judgements, context):
    return Drop("never")
"""


def test_a_method_in_a_custom_file_needs_no_import_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    method = Method.load(f"{file}:mine")
    assert method.needs({}) == Needs(hint=True)
    assert Method.load(f"{file}:mine").function is method.function


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("{}/none.py:mine", "No such file"),
        ("{}/mine.py:other", "no attribute 'other'"),
        ("no_such_module:mine", "No module named"),
        ("mine", "No module named"),
    ],
)
def test_a_missing_part_of_a_method_is_reported(tmp_path: Path, path: str, complaint: str) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    with pytest.raises(ConfigError, match=f"--method-path .*{complaint}"):
        Method.load(path.format(tmp_path))


def test_a_module_that_fails_to_load_is_not_cached(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import nothing_of_this_name")
    with pytest.raises(ConfigError):
        Method.load(f"{file}:mine")
    file.write_text(MINE)
    assert Method.load(f"{file}:mine").needs({}).hint
