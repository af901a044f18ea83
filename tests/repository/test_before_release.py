"""The table of tests that wait for `--all`. A run of all tests rejects an entry that matches none
(tests/conftest.py)."""

from __future__ import annotations

from tests import before_release


def test_entries_without_a_matching_test_are_detected() -> None:
    assert "test_conversations_are_trained_and_new_weights_go_live" in before_release.unused([])
    assert "tests/system/test_demo.py" not in before_release.unused(["tests/system/test_demo.py::test_x"])


def test_entries_are_files_names_and_cases() -> None:
    group = before_release.Group("", ("test_c",), ("tests/a.py", "test_b", "test_c[1]", "*[x]"), "tests/d/")
    nodes = [
        "tests/a.py::test_z",
        "tests/e.py::test_b[3]",
        "tests/e.py::test_c[1]",
        "tests/d/f.py::test_y[x]",
    ]
    assert [len(group.holds(node)) for node in nodes] == [1, 1, 1, 1]
    assert not group.holds("tests/e.py::test_c[2]") and not group.holds("tests/e.py::test_y[x]")
