"""Which tests are quick, and in which order several processes take them."""

from __future__ import annotations

import pytest

from tests import ROOT, parts

TESTS = ROOT / "tests"


@pytest.mark.parametrize("name", [*parts.QUICK, *parts.WHOLE, *parts.LONG])
def test_every_entry_names_a_file_or_folder(name: str) -> None:
    assert (TESTS / name).is_dir() if name.endswith("/") else (TESTS / name).is_file()


def test_whole_runs_begin_first_then_long_files_then_the_others() -> None:
    names = [
        "slime/test_types.py",
        "lab/long/test_gpu_check.py",
        "repository/test_style.py",
        "system/test_loop.py",
    ]
    assert sorted(names, key=lambda name: parts.rank(TESTS / name)) == names[::-1]
    assert parts.rank(ROOT / "elsewhere.py") == parts.rank(TESTS / "slime/test_types.py")
