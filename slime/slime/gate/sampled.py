"""Stage c: the candidate's greedy answers to people's prompts and to questions with known answers."""

from __future__ import annotations

import math
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
NGRAM = 4
"""Length in tokens of the n-grams for detecting repetition."""
REPEATS = 0.5
"""Share of repeated n-grams above which an answer counts as repetitive."""
FEW = 24
"""Minimum number of tokens for judging repetition."""


@dataclass(frozen=True)
class Tried:
    """One answer: ids and natural log-probs [R], its visible text, and whether it ended with a stop token."""

    ids: list[int]
    log_probs: list[float]
    text: str
    ended: bool


def measure_sampled(
    answers: Sequence[Tried], expected: Sequence[str | None], before: Sequence[Tried]
) -> dict[str, float]:
    """Returns shares of malformed answers, and statistics of the others.

    Args:
        expected: text that each answer must contain; None if unknown.
        before: answers of the live weights to the same prompts.

    Returns:
        Shares from 0 to 1: `empty`, `endless`, `repeating`, `other_script` (most letters belong to another
            script than those of the live answer), `same` (equal to the most common answer). `length` in
            tokens and `surprise` in nats per token, with their standard errors (`length_error`,
            `surprise_error`; missing for one value). `answers`: number of answers. `right` and `questions`,
            if expected texts are known.
    """
    count = len(answers)
    measurements = {
        "empty": sum(not answer.text.strip() for answer in answers) / count,
        "endless": sum(not answer.ended for answer in answers) / count,
        "repeating": sum(repeats(answer.ids) for answer in answers) / count,
        "other_script": sum(
            script(answer.text) not in (None, script(old.text))
            for answer, old in zip(answers, before, strict=True)
        )
        / count,
        "same": Counter(answer.text for answer in answers).most_common(1)[0][1] / count,
        "answers": float(count),
    }
    of_tokens = [-value for answer in answers for value in answer.log_probs]
    for name, values in (("length", [float(len(answer.ids)) for answer in answers]), ("surprise", of_tokens)):
        measurements[name] = sum(values) / max(1, len(values))
        if len(values) > 1:
            measurements[f"{name}_error"] = statistics.stdev(values) / math.sqrt(len(values))
    return measurements | share_right(answers, expected)


def share_right(answers: Sequence[Tried], expected: Sequence[str | None]) -> dict[str, float]:
    """Returns `right` (0 to 1) and `questions`; {} if no answer is known."""
    asked = [(answer, want) for answer, want in zip(answers, expected, strict=True) if want is not None]
    if not asked:
        return {}
    right = sum(is_right(answer.text, want) for answer, want in asked) / len(asked)
    return {"right": right, "questions": float(len(asked))}


def share_obeyed(answers: Sequence[Tried], forms: Sequence[str]) -> float:
    """Returns the share of answers that match their form's regular expression (with `(?m)`)."""
    hits = [is_obeyed(answer.text, form) for answer, form in zip(answers, forms, strict=True)]
    return sum(hits) / len(hits)


def is_obeyed(text: str, form: str) -> bool:
    """Returns whether a reply matches a form, a regular expression."""
    return re.search(form, text, re.MULTILINE) is not None


def repeats(ids: Sequence[int]) -> bool:
    """Returns whether most n-grams of an answer are repeated."""
    pieces = [tuple(ids[at : at + NGRAM]) for at in range(len(ids) - NGRAM + 1)]
    return len(ids) >= FEW and 1 - len(set(pieces)) / len(pieces) > REPEATS


def script(text: str) -> str | None:
    """Returns the script of most letters, by its Unicode name (LATIN, CJK, CYRILLIC); None without letters."""
    letters = Counter(unicodedata.name(letter, "?").split()[0] for letter in text if letter.isalpha())
    return letters.most_common(1)[0][0] if letters else None


def is_right(text: str, expected: str) -> bool:
    """Returns whether a text contains the expected answer.

    A number must be the last one in the text; other answers must occur as whole words, ignoring case.
    """
    if _NUMBER.fullmatch(expected):
        numbers = _NUMBER.findall(text)
        return bool(numbers) and float(numbers[-1].replace(",", "")) == float(expected.replace(",", ""))
    return re.search(rf"(?<!\w){re.escape(expected)}(?!\w)", text, re.IGNORECASE) is not None
