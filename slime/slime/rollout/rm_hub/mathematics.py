"""Rewards for mathematics: `math`, `deepscaler` and `dapo`. They block, each for up to seconds."""

from __future__ import annotations

import re
from typing import Any

from slime.rollout.rm_hub.answers import (
    after_thinking,
    as_number,
    has_alternatives,
    labels_of,
    last_boxed,
    normal,
    same_without_algebra,
    stated_values,
)
from slime.rollout.rm_hub.grader import grader

DAPO_TAIL = 300
"""Number of characters at the end of a response in which DAPO searches for the answer."""
_DAPO_ANSWER = re.compile(r"(?i)answer\s*:\s*([^\n]+)")


def is_right(answer: str, label: object) -> bool:
    """Returns whether `answer` equals one of the labels: as a number, as text, else by algebra.

    If a label is a number, an answer with several values is wrong unless all are equal.
    """
    return any(_is_equal(answer, right) for right in labels_of(label))


def _is_equal(answer: str, label: str) -> bool:
    same = same_without_algebra(answer, label)
    if same is not None:
        return same
    if as_number(label) is not None:
        if has_alternatives(answer):
            return False
        if not all(_is_equal(value, label) for value in stated_values(answer)):
            return False
    return grader().same(answer, label)


def math_reward(response: str, label: object) -> float:
    """Returns 1.0 if the last boxed answer, or the whole response without one, is correct; else 0.0."""
    boxed = last_boxed(response)
    return float(is_right(response if boxed is None else boxed, label))


def deepscaler_reward(response: str, label: object) -> float:
    """Returns 1.0 for a correct boxed answer after the end of the reasoning (``</think>`` or
    ``###Response``).

    Reasoning without an end, or an answer without a box, gets 0.0 (Luo et al., DeepScaleR, 2025).
    """
    final = after_thinking(response)
    boxed = None if final is None else last_boxed(final)
    return 0.0 if boxed is None else float(is_right(boxed, label))


def dapo_reward(response: str, label: object) -> dict[str, Any]:
    """Returns {"score": 1.0 or -1.0, "acc": correct or not, "pred": the answer} from the last ``Answer:``
    near the end.

    Numbers are compared by value, others as text, without algebra (Yu et al., DAPO, arXiv 2503.14476).
    """
    answers = _DAPO_ANSWER.findall(response[-DAPO_TAIL:])
    answer = answers[-1].strip() if answers else ""
    answer = last_boxed(answer) or answer
    right = bool(answer) and any(same_without_algebra(answer, one) for one in labels_of(label))
    return {"score": 1.0 if right else -1.0, "acc": right, "pred": normal(answer) if answer else "[INVALID]"}
