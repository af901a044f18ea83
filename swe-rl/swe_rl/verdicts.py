"""A plugin of pytest in the grader's box: tells each test's verdict in lines that printed text cannot imitate.

The lines carry a secret that is read from a file and deleted before any code of the repository is imported. It runs in
whatever Python an image has, from 3.6 on.
"""

import json
import os

SECRET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "secret")
_out = os.dup(1)
_worst = {}  # type: dict[str, str]
_why = {}  # type: dict[str, str]
_RANK = {"skipped": 0, "passed": 1, "failed": 2}


def _taken():  # type: () -> str
    try:
        with open(SECRET) as file:
            secret = file.read()
        os.unlink(SECRET)
    except OSError:
        return ""
    return secret


_secret = _taken()


def _say(what):  # type: (dict[str, object]) -> None
    data = f"\n{_secret} {json.dumps(what)}\n".encode()
    while _secret and data:
        data = data[os.write(_out, data) :]


_say({"begin": True})


def pytest_runtest_logreport(report):  # type: ignore[no-untyped-def]
    """A test passes where no phase of it fails, or where it fails as expected; subtests count for the test that holds
    them."""
    outcome = "passed" if report.outcome == "skipped" and hasattr(report, "wasxfail") else report.outcome
    if report.when != "call" and outcome == "passed":
        return
    before = _worst.get(report.nodeid, "skipped")
    if report.nodeid not in _worst or _RANK[outcome] > _RANK[before]:
        _worst[report.nodeid] = outcome
    if outcome == "failed" and report.nodeid not in _why:
        crash = getattr(report.longrepr, "reprcrash", None)
        _why[report.nodeid] = str(getattr(crash, "message", report.longrepr))[:500]


def pytest_collectreport(report):  # type: ignore[no-untyped-def]
    if report.outcome == "failed":
        _why[report.nodeid] = str(report.longrepr)[-500:]


def pytest_unconfigure():  # type: () -> None
    for test, outcome in _worst.items():
        _say({"test": test, "outcome": outcome})
    for place, why in _why.items():
        _say({"place": place, "why": why})
    _say({"end": len(_worst)})
