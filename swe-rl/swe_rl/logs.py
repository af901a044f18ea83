"""Test names in the benchmarks' forms, and verdicts from logs of other test runners than pytest."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

_PYTEST = re.compile(r"(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+)")
_UNITTEST = re.compile(r"(.+?) \.\.\. (ok|FAIL|ERROR|skipped|expected failure|unexpected success)\b.*")
_SYMPY = re.compile(r"(test_\w+) (ok|F|E|s|f|X|w|T|K)(?: .*)?")
_GOOD = {"PASSED", "XFAIL", "ok", "expected failure"}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def names_of(test: str) -> set[str]:
    """Returns the ids that benchmarks use for a pytest test: the whole id; the part before the first space, as in
    SWE-bench's logs; and R2E's form without file and with dots."""
    return {test, test.split(" ")[0], ".".join(test.split("::")[1:])}


def passed_of(outcomes: Mapping[str, str], loose: bool = False) -> set[str]:
    """Returns names of tests that passed.

    Args:
        loose: also return the other names of `names_of`, for rows whose names come from logs. A name that several
            tests share has passed only if all of them have.
    """
    passed = {test for test, outcome in outcomes.items() if outcome == "passed"}
    if not loose:
        return passed
    further: dict[str, bool] = defaultdict(lambda: True)
    for test in outcomes:
        for name in names_of(test) - outcomes.keys():
            further[name] = further[name] and test in passed
    return passed | {name for name, good in further.items() if good}


def outcomes_of_log(text: str) -> dict[str, str]:
    """Returns verdicts by name from the output of pytest (-rA), unittest (-v) or sympy's runner. As in the
    benchmarks' own harnesses, lines that a patch prints count too."""
    outcomes: dict[str, str] = {}
    for line in _COLOURS.sub("", text).splitlines():
        if match := _PYTEST.match(line):
            name, word = match[2], match[1]
        elif match := _UNITTEST.fullmatch(line) or _SYMPY.fullmatch(line):
            name, word = match[1], match[2]
        else:
            continue
        outcomes[name] = "passed" if word in _GOOD and outcomes.get(name) != "failed" else "failed"
    return outcomes


def files_of_tests(tests: Iterable[str]) -> list[str] | None:
    """Returns the files of pytest tests, in order; None if a test id has another form."""
    named = list(tests)
    if not all("::" in test for test in named):
        return None
    return list(dict.fromkeys(test.split("::")[0] for test in named))
