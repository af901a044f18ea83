"""Texts that are made to take long: no expression that sees what people, tools or models wrote may take its time."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import openclaw
from openclaw.judge.questions import END_CHARACTERS, JudgeQuestion, bounded
from openclaw.judge.rules.judge import hint_by_rules, vote_by_rules

UNITS = (
    "\n", "\n\n", " ", " \n", "\t", "-", "'", '"', "“", "(", "[", "<", "=", ".", "1", "\\", "{", "a", "a ", "no ", "not ",
    "a' ", ": a", ", ", '\\"', "| ", "; ", "- ", "<output>", "Error", "Error: ", "Traceback ", "1 passed ",
    "wrong ", "that is ", "the ", "thanks ", "这", "是我要的", "。", "，", "a“", "too ", "name(", "&&",
)  # fmt: skip
"""Repeated until a text is full."""
LONG = 4 * END_CHARACTERS
SECONDS = 1.0
"""For one text, of one expression; at the quadratic ones of before it was ten and more."""


def patterns() -> dict[re.Pattern[str], str]:
    """Every compiled expression that a module of the runtime holds, and which module."""
    found: dict[re.Pattern[str], str] = {}
    for module in pkgutil.walk_packages(openclaw.__path__, "openclaw."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name, module in list(sys.modules.items()):
        if name.startswith("openclaw."):
            for pattern in _in(vars(module), 0):
                found.setdefault(pattern, name)
    return found


def _in(value: object, depth: int) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 6 and isinstance(value, dict):
        for inner in value.values():
            yield from _in(inner, depth + 1)
    elif depth < 6 and isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _in(inner, depth + 1)
    elif depth < 6 and type(value).__module__.startswith("openclaw") and hasattr(value, "__dict__"):
        yield from _in(vars(value), depth + 1)


def seconds_of(pattern: re.Pattern[Any], text: str) -> float:
    """Returns the processor time that it takes to find all matches."""
    began = time.process_time()
    for _ in pattern.finditer(text.encode() if isinstance(pattern.pattern, bytes) else text):
        pass
    return time.process_time() - began


def is_slow(pattern: re.Pattern[Any], text: str) -> bool:
    """Returns whether finding all matches takes over `SECONDS`. Half of the text is tried first: it takes an eighth of
    the time even if time grows with the cube of the length."""
    half = text[: len(text) // 2] + text[-1:]
    if seconds_of(pattern, half) < SECONDS / 10:
        return False
    # a second time only if the first was slow, which a busy machine may cause
    return all(seconds_of(pattern, text) > SECONDS for _ in range(2))


def test_all_regular_expressions_handle_hostile_texts_in_time() -> None:
    slow = []
    wholes = {unit: (unit * LONG)[:LONG] + "\x00" for unit in UNITS}
    judged = {unit: bounded(whole) for unit, whole in wholes.items()}
    for pattern, module in patterns().items():
        for unit, whole in wholes.items():
            text = judged[unit] if module.startswith("openclaw.judge") else whole[:6000]
            if is_slow(pattern, text):
                slow.append((module, pattern.pattern[:60], unit))
    assert slow == []


@pytest.mark.parametrize("role", ["user", "tool"])
def test_the_rules_judge_hostile_texts_in_time(role: Any) -> None:
    for unit in UNITS:
        text = (unit * LONG)[:LONG]
        question = JudgeQuestion(
            messages=[{"role": "user", "content": text}],
            response=text,
            next_state=[{"role": role, "content": text + "x"}],
            role=role,
        )
        began = time.process_time()
        vote_by_rules(question)
        hint_by_rules(question)
        assert time.process_time() - began < 2 * SECONDS, unit


def test_ordinary_texts_are_not_shortened() -> None:
    text = "Too much formatting!!!\n\n  Write it in normal sentences...   please -----------"
    assert bounded(text) == text


def test_both_ends_of_a_long_text_are_judged() -> None:
    text = bounded("begin " + "ab" * LONG + " end")
    assert text.startswith("begin ") and text.endswith(" end") and len(text) <= 2 * END_CHARACTERS + 1
