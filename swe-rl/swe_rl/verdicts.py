"""A plugin of pytest in the grader's box: tells each test's verdict in lines that printed text cannot imitate.

The lines carry a secret that is read from a file and deleted before any code of the repository is imported.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

SECRET = Path("/workspace/.verdict-secret")
_secret = SECRET.read_text() if SECRET.exists() else ""
SECRET.unlink(missing_ok=True)
_out = os.dup(1)
_worst: dict[str, str] = {}
_why: dict[str, str] = {}
_RANK = {"skipped": 0, "passed": 1, "failed": 2}


def _say(what: dict[str, Any]) -> None:
    data = f"\n{_secret} {json.dumps(what)}\n".encode()
    while data:
        data = data[os.write(_out, data) :]


def pytest_runtest_logreport(report: Any) -> None:
    """A test passes where no phase of it fails; subtests count for the test that holds them."""
    if report.when != "call" and report.outcome == "passed":
        return
    before = _worst.get(report.nodeid, "skipped")
    if report.nodeid not in _worst or _RANK[report.outcome] > _RANK[before]:
        _worst[report.nodeid] = report.outcome
    if report.outcome == "failed" and report.nodeid not in _why:
        crash = getattr(report.longrepr, "reprcrash", None)
        _why[report.nodeid] = str(getattr(crash, "message", report.longrepr))[:500]


def pytest_collectreport(report: Any) -> None:
    if report.outcome == "failed":
        _why[report.nodeid] = str(report.longrepr)[-500:]


def pytest_unconfigure() -> None:
    for test, outcome in _worst.items():
        _say({"test": test, "outcome": outcome})
    for place, why in _why.items():
        _say({"place": place, "why": why})
    _say({"end": len(_worst)})
