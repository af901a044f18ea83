"""Metrics of evaluators, by OSWorld's names: each compares a result with rules and returns 0 to 1."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gui_rl.scoring.task import TaskError

Metric = Callable[..., float]


def exact_match(result: Any, rules: Any, **options: Any) -> float:
    return float(_same(result, _rules(rules)["expected"]))


def literal_match(result: Any, expected: Any, **options: Any) -> float:
    return float(_same(result, expected))


def match_in_list(result: Any, rules: Any, **options: Any) -> float:
    return float(any(_same(result, one) for one in _rules(rules)["expected"]))


def is_in_list(result: Any, rules: Any, **options: Any) -> float:
    expected = _rules(rules)["expected"]
    if isinstance(result, list):
        return float(any(_same(one, expected) for one in result))
    return float(expected in (result or []))


def check_include_exclude(result: Any, rules: Any, **options: Any) -> float:
    """Passes if the result contains all texts of `include` and none of `exclude`."""
    if result is None:
        return 0.0
    text, rules = str(result), _rules(rules)
    included = all(one in text for one in rules.get("include", []))
    return float(included and not any(one in text for one in rules.get("exclude", [])))


def check_direct_json_object(result: Any, rules: Any, **options: Any) -> float:
    """Passes if each entry of `expected` equals that of the result; with `expect_in_result`, if it is contained in
    it."""
    if not isinstance(result, Mapping):
        return 0.0
    rules = _rules(rules)
    inside = bool(rules.get("expect_in_result", False))
    for key, value in rules["expected"].items():
        got = result.get(key)
        if inside:
            expected = value if isinstance(value, list) else [value]
            if got is None or not any(one in got for one in expected):
                return 0.0
        elif not _same(got, value):
            return 0.0
    return 1.0


def compare_text_file(result: Any, expected: Any, **options: Any) -> float:
    """Passes if two texts are equal except for white space at their ends; `ignore_blanks`: any white space,
    `ignore_case`: upper and lower case."""
    if result is None or expected is None:
        return 0.0
    texts = [str(one).strip() for one in (result, expected)]
    if options.get("ignore_blanks"):
        texts = ["".join(one.split()) for one in texts]
    if options.get("ignore_case"):
        texts = [one.lower() for one in texts]
    return float(texts[0] == texts[1])


def file_contains(result: Any, rules: Any, **options: Any) -> float:
    """Passes if the file contains each text of `expected`."""
    return float(result is not None and all(one in str(result) for one in _rules(rules)["expected"]))


def check_json(result: Any, rules: Any, **options: Any) -> float:
    """Passes if the file is JSON that satisfies all of `expect` and none of `unexpect`: {"key": [path], "method":
    "eq" or "ne", "ref": value}."""
    try:
        document = json.loads(result or "")
    except (ValueError, RecursionError):
        return 0.0
    rules = _rules(rules)
    has_expected = all(_holds(document, one) for one in rules.get("expect", []))
    return float(has_expected and not any(_holds(document, one) for one in rules.get("unexpect", [])))


def _holds(value: Any, rule: Mapping[str, Any]) -> bool:
    for key in rule["key"]:
        inside = isinstance(value, Mapping) and key in value
        if not inside and not (isinstance(value, list) and isinstance(key, int) and key < len(value)):
            return False
        value = value[key]
    method = rule.get("method", "eq")
    if method not in ("eq", "ne"):
        raise TypeError(f"there is no method {method!r}")
    return bool(_same(value, rule["ref"]) == (method == "eq"))


def is_expected_active_tab(result: Any, rules: Any, **options: Any) -> float:
    """Passes if the visible tab has this URL or title (`type`: url or title)."""
    rules, result = _rules(rules), result or {}
    if rules.get("type") == "title":
        return float(result.get("title") == rules["title"])
    return float(_plain(result.get("url", "")) == _plain(rules["url"]))


def is_expected_url_pattern_match(result: Any, rules: Any, **options: Any) -> float:
    """Passes if every regular expression of `expected` matches the URL."""
    url = result.get("url", "") if isinstance(result, Mapping) else str(result or "")
    return float(all(re.search(pattern, url) for pattern in _rules(rules)["expected"]))


def is_expected_tabs(result: Any, rules: Any, **options: Any) -> float:
    """Passes if exactly these URLs are open."""
    opened = sorted(_plain(tab["url"]) for tab in result or [])
    return float(opened == sorted(map(_plain, _rules(rules)["urls"])))


def _plain(url: str) -> str:
    """Returns a URL without http or https, which a rule may omit, and without `www.`; other schemes are kept."""
    return re.sub(r"^(https?://)?(www\.)?", "", url).rstrip("/")


def _same(result: Any, expected: Any) -> bool:
    """Returns whether two JSON values are equal; true is not 1."""
    if isinstance(result, Mapping) and isinstance(expected, Mapping):
        return result.keys() == expected.keys() and all(_same(result[key], expected[key]) for key in expected)
    if isinstance(result, list) and isinstance(expected, list):
        return len(result) == len(expected) and all(map(_same, result, expected))
    return isinstance(result, bool) == isinstance(expected, bool) and bool(result == expected)


def _rules(rules: Any) -> Mapping[str, Any]:
    if not isinstance(rules, Mapping):
        raise TypeError("the rules are not an object")
    return rules


METRICS: Mapping[str, Metric] = {
    one.__name__: one
    for one in (
        exact_match,
        literal_match,
        match_in_list,
        is_in_list,
        check_include_exclude,
        check_direct_json_object,
        compare_text_file,
        file_contains,
        check_json,
        is_expected_active_tab,
        is_expected_url_pattern_match,
        is_expected_tabs,
    )
}


def score(func: str, result: Any, expected: Any, options: Mapping[str, Any]) -> float:
    """Returns a metric's score. Raises TaskError for an unknown metric or invalid rules."""
    if func not in METRICS:
        raise TaskError(f"there is no metric {func!r}; known: {', '.join(METRICS)}")
    try:
        return METRICS[func](result, expected, **options)
    except (KeyError, TypeError, AttributeError, re.error) as error:
        raise TaskError(f"metric {func}: {type(error).__name__} {error}") from error


def together(scores: Sequence[float], conj: str) -> float:
    """Combines scores: "and": 0 if one is 0, else the mean; "or": the maximum."""
    if conj == "or":
        return max(scores, default=0.0)
    return sum(scores) / len(scores) if scores and min(scores) > 0 else 0.0
