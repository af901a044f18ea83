"""Names of tests as benchmarks write them, and verdicts from the logs of tests that do not run under pytest."""

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
    """Returns the ids under which benchmarks know a test of pytest: whole; up to the first space, as SWE-bench's logs
    are read; without its file and with dots, as R2E does."""
    return {test, test.split(" ")[0], ".".join(test.split("::")[1:])}


def passed_of(outcomes: Mapping[str, str], loose: bool = False) -> set[str]:
    """Returns names of tests that passed.

    Args:
        loose: adds the other names of `names_of`, for rows whose names come from logs. If several tests share such a
            name, it passed only if all of them passed.
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
    """Verdicts by name in what pytest (-rA), unittest (-v) or sympy's runner printed. What a patch prints counts here, as
    it does in the benchmarks' own harnesses."""
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
    """Files of tests of pytest, in their order; None if one is named in another way."""
    named = list(tests)
    if not all("::" in test for test in named):
        return None
    return list(dict.fromkeys(test.split("::")[0] for test in named))
