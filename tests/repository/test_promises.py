"""Each promise in the tables of SECURITY.md names an existing test."""

from __future__ import annotations

import re

from tests import ROOT

HEAD = "| promise | test |"


def rows() -> list[tuple[str, str]]:
    """Returns promise and test of each row."""
    found: list[tuple[str, str]] = []
    inside = False
    for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines():
        inside = line.startswith("|") and (inside or line == HEAD)
        if inside and line != HEAD and not line.startswith("|---"):
            promise, test = line.strip("|").rsplit(" | ", 1)
            found.append((promise.strip(), test.strip()))
    return found


def test_each_promise_names_tests_that_exist() -> None:
    assert len(rows()) > 25
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for promise, test in rows():
        files = re.findall(r"`([\w/]+\.py)`", test)
        assert files or test.startswith("the same"), promise
        for file in files:
            known = (ROOT / file).is_file() if "/" in file else file in names
            assert known, f"{promise}: {file}"
