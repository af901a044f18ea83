"""Rewards for short texts and multiple choice: `f1` and `gpqa`."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from slime.errors import RewardError
from slime.rollout.rm_hub.answers import after_thinking, labels_of, last_boxed

_CLOSED = {"yes", "no", "noanswer"}
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_LETTER = (
    r"(?i:answer|option|choice)(?:\s+(?i:is|was))?\s*[:=]?\s*(?:\*\*|\\text\{|\\boxed\{|[\s(\[\"'])*([A-Z])(?![A-Za-z])",
    r"^\W*([A-Z])\W*$",
    r"\*\*\W*([A-Z])\W*\*\*",
    r"\(([A-Z])\)",
)


def words_of(text: str) -> list[str]:
    """Returns lower-case words without punctuation and English articles."""
    return [word for word in text.lower().translate(_PUNCTUATION).split() if word not in ("a", "an", "the")]


def f1_reward(response: str, label: object) -> float:
    """Returns the F1 score of words shared by response and label, 0 to 1.

    The best of several labels counts. Yes, no and noanswer are correct or wrong as a whole (Rajpurkar et al.,
    SQuAD, arXiv 1606.05250; Yang et al., HotpotQA, arXiv 1809.09600).
    """
    return max((_f1(words_of(response), words_of(right)) for right in labels_of(label)), default=0.0)


def _f1(answer_words: list[str], right: list[str]) -> float:
    closed = [" ".join(words) for words in (answer_words, right)]
    if _CLOSED.intersection(closed):
        return float(closed[0] == closed[1])
    shared = sum((Counter(answer_words) & Counter(right)).values())
    return 2 * shared / (len(answer_words) + len(right)) if shared else 0.0


def gpqa_reward(response: str, label: object, metadata: Mapping[str, Any]) -> float:
    """Returns 1.0 if the response chooses the correct letter, or has no letter and ends with the text of that
    choice.

    The correct choice is `metadata["correct_letter"]`, or the label: a letter, a number from 0, or a choice's
    text. `metadata["choices"]` (list, or texts by letter) is needed for the last two.

    Raises:
        RewardError: the sample does not define the correct choice.
    """
    choices = _choices(metadata.get("choices"))
    right = _right_letter(label, metadata, choices)
    valid = set(metadata.get("valid_letters") or choices or string.ascii_uppercase[:10])
    final = after_thinking(response) or response
    letter = _chosen(final, valid)
    if letter is not None:
        return float(letter == right)
    named = [name for name, text in choices.items() if text and text.lower() in final.lower()]
    return float(named == [right])


def _chosen(text: str, valid: set[str]) -> str | None:
    boxed = last_boxed(text)
    if boxed is not None and boxed.strip("(). ").upper() in valid:
        return boxed.strip("(). ").upper()
    for pattern in _LETTER:
        letters = [letter for letter in re.findall(pattern, text, re.MULTILINE) if letter in valid]
        if letters:
            return str(letters[-1])
    return None


def _choices(value: object) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {str(letter).upper(): str(text) for letter, text in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return dict(zip(string.ascii_uppercase, map(str, value), strict=False))
    return {}


def _right_letter(label: object, metadata: Mapping[str, object], choices: Mapping[str, str]) -> str:
    named = metadata.get("correct_letter")
    if isinstance(named, str) and named:
        return named.strip().upper()
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(choices):
        return list(choices)[label]
    text = str(label).strip() if label is not None else ""
    if len(text.strip("().")) == 1 and text.strip("().").isalpha():
        return text.strip("().").upper()
    for letter, choice in choices.items():
        if text and choice.strip().lower() == text.lower():
            return letter
    raise RewardError(
        f"gpqa needs metadata.correct_letter, or a label that is one of the choices; got {label!r}"
    )
