"""Converts published files of problems with answers to rows for `--prompt-data`.

Supported are DAPO-Math-17k (messages, the answer in `reward_model`), AIME's files (several names for problem and
answer), and rows in the final form. DAPO-Math-17k repeats each problem a hundred times; every problem is kept once.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slime.errors import DataError
from slime.rollout.prompts import PromptFile

PROMPTS = ("prompt", "problem", "Problem", "question", "input")
ANSWERS = ("label", "answer", "Answer", "expected_answer", "ground_truth")
_DAPO_BEFORE = re.compile(r"^Solve the following math problem step by step\..*?\n\n", re.DOTALL)
_DAPO_AFTER = re.compile(r"\n\nRemember to put your answer on its own line after \"Answer:\"\.?\s*$")
_SPACES = re.compile(r"\s+")


@dataclass
class Kept:
    """The kept rows, and the number of skipped ones by reason."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read_rows(files: Sequence[str | Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (position, row) for all files, JSON Lines or Parquet. Raises ConfigError or DataError with the
    position."""
    for file in files:
        yield from PromptFile.parse(str(file)).read()


def problems(rows: Iterable[tuple[str, Mapping[str, Any]]], without: Iterable[str] = ()) -> Kept:
    """Returns each problem once, in the order of the rows.

    A problem with different answers is skipped, because the correct one is unknown.

    Args:
        without: problems to exclude, such as those of an evaluation.

    Raises:
        DataError: a row has no problem or no answer; the error names the row.
    """
    kept, forbidden = Kept(), {same(text) for text in without}
    by_key: dict[str, dict[str, Any]] = {}
    answers: dict[str, set[str]] = {}
    for where, row in rows:
        text, label = problem_of(where, row), answer_of(where, row)
        key = same(text)
        if key in forbidden:
            kept.left_out["held out"] += 1
            continue
        if key in by_key:
            kept.left_out["repeated"] += 1
        answers.setdefault(key, set()).add(label)
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        by_key.setdefault(key, {"prompt": text, "label": label, "metadata": {"task_id": name}})
    for key, row in by_key.items():
        if len(answers[key]) > 1:
            kept.left_out["answers disagree"] += 1
        else:
            kept.rows.append(row)
    return kept


def same(text: str) -> str:
    """Returns a key that is equal for all typographic variants of a problem."""
    return _SPACES.sub(" ", text).strip()


def problem_of(where: str, row: Mapping[str, Any]) -> str:
    """Returns only the problem, without DAPO's surrounding instructions, which ask for another answer format."""
    for name in PROMPTS:
        value = row.get(name)
        if isinstance(value, list) and value:
            value = next((one.get("content") for one in value if one.get("role") == "user"), None)
        if isinstance(value, str) and value.strip():
            return _DAPO_AFTER.sub("", _DAPO_BEFORE.sub("", value)).strip()
    raise DataError(
        f"{where}: no problem in any of {', '.join(PROMPTS)}; it has {', '.join(row) or 'nothing'}"
    )


def answer_of(where: str, row: Mapping[str, Any]) -> str:
    """Returns the correct answer as text."""
    model = row.get("reward_model")
    values = [row.get(name) for name in ANSWERS]
    values += [model.get("ground_truth")] if isinstance(model, Mapping) else []
    for value in values:
        if isinstance(value, str | int | float) and str(value).strip():
            return str(value).strip()
    raise DataError(
        f"{where}: no answer in any of {', '.join(ANSWERS)}, reward_model.ground_truth; it has "
        f"{', '.join(row) or 'nothing'}"
    )
