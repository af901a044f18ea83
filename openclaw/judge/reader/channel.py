"""Classifies a user's reply: a complaint about length, layout, greeting, tone or content, thanks, or another
question.

The reply is scored after example lines of each class ("What people write back when the answer was too long and they
want a shorter one: ..."), and gets the class under which it is most likely. Small models classify better in this
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
"""Least probability of an accepted class."""
LONGEST_TOKENS = 60
"""Tokens of a reply that are scored, from its beginning. Comments on an answer are short."""
_MORE_OF_LONG = math.log(0.1)
"""Log prior of a wish for more if the answer was not very short, relative to the other classes. It is low because
training the opposite of what a user wants does the most harm."""
_HAS_ALREADY = math.log(0.03)
"""Log prior of a request for a form that the answer seems to have."""


@dataclass(frozen=True)
class Kind:
    """A class of comments on an answer.

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
        """Returns the text before the reply."""
        lines = "".join(f"- {text}\n" for text in self.texts)
        return f"What people write back when {self.when}:\n{lines}-"


@functools.cache
def kinds() -> Mapping[str, Kind]:
    """Returns all classes by name."""
    lines = Path(__file__).with_name("examples.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return {
        row["kind"]: Kind(row["kind"], row["score"], row["when"], tuple(row["texts"]), tuple(row["checks"]))
        for row in rows
    }


@dataclass(frozen=True)
class Reading:
    """The most probable class, and its probability (0 to 1)."""

    kind: Kind
    share: float

    @property
    def is_sure(self) -> bool:
        return self.share >= SURE

    @property
    def reason(self) -> str:
        """Returns an explanation for people."""
        return f"the model reads this as: {self.kind.when} ({self.share:.0%} sure)"


def pairs(comment: str, encode: Callable[[str], list[int]]) -> dict[str, tuple[list[int], list[int]]]:
    """Returns (ids of the context, ids of the reply) by class."""
    sentence = encode(f" {' '.join(comment.split())}\n")[:LONGEST_TOKENS]
    return {name: (encode(kind.context), sentence) for name, kind in kinds().items()}


def read(log_probs: Mapping[str, float], answer: str | None = None) -> Reading:
    """Classifies a reply.

    Args:
        log_probs: log-probs of the reply after the context of each class, in nats.
        answer: the answer that the reply is about: people seldom ask for a form that it has already. None: any.
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
    """Classifies a reply together with the one to the previous answer: two complaints in a row are usually the same.
    If one of the two is probably no complaint, only the second counts."""
    if any(read(one, answer).kind.score != -1 for one in (earlier, now)):
        return read(now, answer)
    both = read({name: score + earlier[name] for name, score in now.items()}, answer)
    return both if both.kind.score == -1 else read(now, answer)
