"""A pytest plugin in the grader's sandbox: prints each test's verdict in lines that other programs cannot imitate.

The lines contain a secret, which is read before any code of the repository is imported, and which no module stores
under a name. With the tests of each module, it runs tests that must fail (traps). If one passes or does not run, the
test runner was manipulated. It runs in the image's Python (3.6 or later), as a file next to a file `secret`; the
grader's own runner calls `hooks` instead.
"""

import json
import os
import random
import unittest

import pytest

_RANK = {"skipped": 0, "passed": 1, "failed": 2}


def _not_so():  # type: () -> None
    raise AssertionError("this test must fail")


def _wrong():  # type: () -> None
    raise ValueError("this test must fail")


def _unequal():  # type: () -> None
    assert 1 == 2


def _no_error():  # type: () -> None
    with pytest.raises(ValueError):
        pass


def _far():  # type: () -> None
    assert pytest.approx(2) == 1


def _unittest():  # type: () -> None
    unittest.TestCase("__init__").assertEqual(1, 2)


def _failing():  # type: () -> None
    pytest.fail("this test must fail")


FIRST = (_not_so, _wrong)
FURTHER = (_unequal, _no_error, _far, _unittest, _failing)
"""Traps that run only with the last module, because their checks do not depend on the module."""


def hooks(secret):  # type: (str) -> dict[str, object]
    """Returns the plugin's functions by name. No function stores state in an attribute."""
    out = os.dup(1)
    worst = {}  # type: dict[str, str]
    why = {}  # type: dict[str, str]
    traps = {}  # type: dict[str, str]
    unearned = set()  # type: set[str]
    write, dumps, rank = os.write, json.dumps, dict(_RANK)

    def say(what):  # type: (dict[str, object]) -> None
        data = f"\n{secret} {dumps(what)}\n".encode()
        while secret and data:
            data = data[write(out, data) :]

    def pytest_configure(config):  # type: ignore[no-untyped-def]
        config.option.maxfail = 0
        # the workers collect tests too, and must all collect the same
        if getattr(config.option, "numprocesses", None):
            say({"traps": 0})

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(config, items):  # type: ignore[no-untyped-def]
        if not hasattr(config, "workerinput") and not getattr(config.option, "numprocesses", None):
            items[:] = _with_traps(items, traps)
            say({"traps": len(traps)})

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(item, call):  # type: ignore[no-untyped-def]
        if call.excinfo is not None and _is_unearned(item, call.excinfo):
            unearned.add(item.nodeid)

    def pytest_runtest_logreport(report):  # type: ignore[no-untyped-def]
        """Records a verdict. A test passes if none of its phases fails, or if it fails as expected; subtests count
        for the containing test."""
        expected = hasattr(report, "wasxfail") and report.nodeid not in unearned
        outcome = "passed" if report.outcome == "skipped" and expected else report.outcome
        if report.when != "call" and outcome == "passed":
            return
        table = traps if report.nodeid in traps else worst
        before = table.get(report.nodeid) or "skipped"
        if not table.get(report.nodeid) or rank[outcome] > rank[before]:
            table[report.nodeid] = outcome
        if outcome == "failed" and report.nodeid not in why and table is worst:
            crash = getattr(report.longrepr, "reprcrash", None)
            why[report.nodeid] = str(getattr(crash, "message", report.longrepr))[:500]

    def pytest_collectreport(report):  # type: ignore[no-untyped-def]
        if report.outcome == "failed":
            why[report.nodeid] = str(report.longrepr)[-500:]

    def pytest_sessionfinish(session, exitstatus):  # type: ignore[no-untyped-def]
        """Removes traps from the failures of the run, for scripts that check its exit code."""
        failed = sum(outcome == "failed" for outcome in traps.values())
        if failed and session.testsfailed == failed and exitstatus == 1:
            session.exitstatus = 0

    def pytest_unconfigure():  # type: () -> None
        for test, outcome in worst.items():
            say({"test": test, "outcome": outcome})
        for place, reason in why.items():
            say({"place": place, "why": reason})
        fooled = [outcome for outcome in traps.values() if outcome in ("", "passed")]
        say({"end": len(worst), "fooled": len(fooled), "traps": len(traps)})

    say({"begin": True})
    return {name: hook for name, hook in locals().items() if name.startswith("pytest_")}


def _with_traps(items, traps):  # type: ignore[no-untyped-def]
    """Adds the tests that must fail after each module's last test; adds their names to `traps`."""
    modules = [item.getparent(pytest.Module) if isinstance(item, pytest.Function) else None for item in items]
    last = {id(module): place for place, module in enumerate(modules) if module is not None}
    trapped = []
    for place, module in enumerate(modules):
        trapped.append(items[place])
        if module is None or last[id(module)] != place:
            continue
        for function in FIRST + (FURTHER if place == max(last.values()) else ()):
            name = f"test_{random.SystemRandom().getrandbits(64):x}"
            make = getattr(pytest.Function, "from_parent", None)
            trap = (
                make(module, name=name, callobj=function)
                if make
                else pytest.Function(name, parent=module, callobj=function)
            )
            traps[trap.nodeid] = ""
            trapped.append(trap)
    return trapped


def _is_unearned(item, excinfo):  # type: ignore[no-untyped-def]
    """Returns whether the tested code itself calls a failure expected, while neither a mark of the test nor its file
    does."""
    if excinfo.typename not in ("XFailed", "Exception") or not issubclass(
        excinfo.type, pytest.xfail.Exception
    ):
        return False
    names = [os.path.basename(str(entry.path)) for entry in excinfo.traceback]
    outer = [name for name in names if name not in ("outcomes.py", "skipping.py")]
    own = os.path.basename(str(item.fspath))
    return bool(outer) and outer[-1] not in (own, "conftest.py", "nose.py", "runner.py")


def _taken(place):  # type: (str) -> str
    try:
        with open(place) as file:
            secret = file.read()
        os.unlink(place)
    except OSError:
        return ""
    return secret


if __name__ != "boxed":
    globals().update(hooks(_taken(os.path.join(os.path.dirname(os.path.abspath(__file__)), "secret"))))
