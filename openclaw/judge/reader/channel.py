"""Classifies a person's reply: a complaint about length, layout, greeting, tone or content, thanks, or
another question.

The sentence is scored after example lines of each kind ("What people write back when the answer was too long and they
want a shorter one: ..."), and belongs to the kind under which it is most likely. Small models classify better in this
direction than by naming a class (noisy channel; Min et al., arXiv 2108.04106).
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from openclaw.common.answer_form import already_has, is_very_short

SURE = 0.95
"""Probability of a kind from which it counts as read."""
LONGEST_TOKENS = 60
"""Tokens of a sentence that are read, from its beginning. Comments on an answer are short."""
_MORE_OF_LONG = math.log(0.1)
"""Log prior of wanting more if the answer was not very short, relative to the other kinds. It is low because training
the opposite of what a person wants does the most harm."""
_HAS_ALREADY = math.log(0.03)
"""Log prior of asking for a form that the answer seems to have."""


@dataclass(frozen=True)
class Kind:
    """A kind of comment on an answer.

    Attributes:
        name: a `Pole`, or tone, wrong, thanks, next.
        score: score of the answer that the comment is about: -1, 0 or 1.
        when: the situation in which people write such a comment.
        texts: examples.
        checks: further examples that a model must classify correctly (see `Reader`).
    """

    name: str
    score: int
    when: str
    texts: tuple[str, ...]
    checks: tuple[str, ...]

    @property
    def context(self) -> str:
        """The text before the sentence."""
        lines = "".join(f"- {text}\n" for text in self.texts)
        return f"What people write back when {self.when}:\n{lines}-"


@functools.cache
def kinds() -> Mapping[str, Kind]:
    """All kinds by their names."""
    lines = Path(__file__).with_name("examples.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return {
        row["kind"]: Kind(row["kind"], row["score"], row["when"], tuple(row["texts"]), tuple(row["checks"]))
        for row in rows
    }


@dataclass(frozen=True)
class Reading:
    """The most probable kind, and how probable it is (0 to 1)."""

    kind: Kind
    share: float

    @property
    def is_sure(self) -> bool:
        return self.share >= SURE

    @property
    def reason(self) -> str:
        """In words of a person."""
        return f"the model reads this as: {self.kind.when} ({self.share:.0%} sure)"


def pairs(comment: str, encode: Callable[[str], list[int]]) -> dict[str, tuple[list[int], list[int]]]:
    """(ids of the context, ids of the sentence) by kind."""
    sentence = encode(f" {' '.join(comment.split())}\n")[:LONGEST_TOKENS]
    return {name: (encode(kind.context), sentence) for name, kind in kinds().items()}


def read(log_probs: Mapping[str, float], answer: str | None = None) -> Reading:
    """The reading of a sentence.

    Args:
        log_probs: of the sentence after the context of each kind, in nats.
        answer: what the sentence is about: people seldom ask for a form that it has already. None: any.
    """
    scores = dict(log_probs)
    if answer is not None:
        for name in already_has(answer):
            scores[name] += _HAS_ALREADY
        if not is_very_short(answer):
            scores["long"] += _MORE_OF_LONG
    best = max(scores, key=lambda name: scores[name])
    total = math.fsum(math.exp(score - scores[best]) for score in scores.values())
    return Reading(kinds()[best], 1 / total)


def read_both(earlier: Mapping[str, float], now: Mapping[str, float], answer: str) -> Reading:
    """The reading of a sentence after another one about the answer before: who complains twice complains about the same.
    If one of the two is rather no complaint, the reading of the second alone."""
    if any(read(one, answer).kind.score != -1 for one in (earlier, now)):
        return read(now, answer)
    both = read({name: score + earlier[name] for name, score in now.items()}, answer)
    return both if both.kind.score == -1 else read(now, answer)
