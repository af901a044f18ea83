"""Scores of answers as in MetaClaw-Bench, and the feedback on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openclaw_test.evaluation.metaclaw.reading import Choice, Round, letters

_BOX = re.compile(r"\\(?:bbox|boxed)\{([^}]*)\}")
GO_ON = "Please bear this in mind from the next task on."


@dataclass(frozen=True)
class Score:
    """Score of one round.

    Attributes:
        kind: `file_check` or `multi_choice`.
        score: file_check: 1 or 0 by the exit status; multi_choice: 1 - (wrong + missed) / options, 0 without an answer.
        exact, iou: of the chosen letters; for file_check as the score.
        chosen: letters; None without a box, or for file_check.
    """

    kind: str
    score: float
    exact: float
    iou: float
    chosen: frozenset[str] | None = None


def chosen_in(text: str) -> frozenset[str] | None:
    """Returns the letters in the last box of an answer; None if there is none."""
    boxes = _BOX.findall(text)
    return letters(boxes[-1]) if boxes else None


def score_choice(check: Choice, text: str) -> Score:
    """Returns the score of an answer to a question with options."""
    chosen = chosen_in(text)
    if chosen is None:
        return Score("multi_choice", 0.0, 0.0, 0.0)
    wrong, missed = len(chosen - check.right), len(check.right - chosen)
    score = 1 - (wrong + missed) / max(len(check.options), 1)
    iou = len(chosen & check.right) / len(chosen | check.right)
    return Score("multi_choice", score, float(chosen == check.right), iou, chosen)


def score_files(exit_code: int | None, expected: int) -> Score:
    """Returns the score of a round by the check's exit status; None: it exceeded a limit."""
    passed = float(exit_code == expected)
    return Score("file_check", passed, passed, passed)


def feedback_of(one: Round, score: Score) -> str:
    """Returns the feedback on an answer before the next question; "" if the round has none."""
    if score.exact:
        return one.correct
    if not isinstance(one.check, Choice):
        return f"{one.incorrect}\n{GO_ON}" if one.incorrect else ""
    if score.chosen is None:
        return f"Your answer had no \\bbox{{...}} with the letters of the options. {GO_ON}"
    lines = [
        f"{letter} should have been chosen: {_why(one, letter)}"
        for letter in sorted(one.check.right - score.chosen)
    ]
    lines += [
        f"{letter} should not have been chosen: {_why(one, letter)}"
        for letter in sorted(score.chosen - one.check.right)
    ]
    return "\n".join([*lines, GO_ON])


def _why(one: Round, letter: str) -> str:
    return one.options.get(letter, "")


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Returns `{"rounds", "score", "file_check": {"rounds", "score"}, "multi_choice": {"rounds", "score", "exact",
    "iou"}}`."""
    numbers: dict[str, Any] = {"rounds": len(scores), "score": _mean([one.score for one in scores])}
    for kind, names in (("file_check", ("score",)), ("multi_choice", ("score", "exact", "iou"))):
        part = [one for one in scores if one.kind == kind]
        if part:
            means = {name: _mean([getattr(one, name) for one in part]) for name in names}
            numbers[kind] = {"rounds": len(part), **means}
    return numbers


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0
