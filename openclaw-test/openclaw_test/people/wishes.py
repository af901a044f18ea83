"""Tests whether a model still obeys explicit requests after learning a habit. It has cases and detectors.

A request follows the question, is in the system message, or is a complaint about a reply of another form. The same
replies measure whether a model can still write in different ways.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tiny_claw import detectors
from tiny_claw.manners import OTHERWISE, obeys, write_reply
from tiny_claw.problems import Problem, random_problem

Kind = Literal["list", "number", "friendly", "detailed"]
Place = Literal["question", "system", "complaint"]
Split = Literal["search", "report", "blind"]
Messages = list[dict[str, Any]]

KINDS: tuple[Kind, ...] = ("list", "number", "friendly", "detailed")
PLACES: tuple[Place, ...] = ("question", "system", "complaint")
BAR = 0.8
"""Least share of the obedience before learning that must remain, for each row of list requests, for the mean of the
other requests, and for the variety of replies."""

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Case:
    """One request at one place, about one problem; `messages` end with the user's."""

    kind: Kind
    place: Place
    problem: Problem
    messages: Messages

    def obeyed(self, reply: str) -> bool:
        """Returns whether the reply has the requested form; wrong results are counted elsewhere."""
        return obeys(self.kind, self.problem, reply)


@dataclass(frozen=True)
class Obedience:
    """Shares of replies that obey, from 0 to 1, and the variety of the replies.

    Attributes:
        lists: by place, of replies to requests for a list.
        others: mean over the other kinds and all places.
        forms: effective number of different replies (the exponential of their entropy), numbers and words of the
            question left out.
        spread: characters between the 10th and the 90th percentile of the lengths.
    """

    lists: dict[Place, float]
    others: float
    kinds: dict[Kind, float]
    forms: float
    spread: float

    def as_dict(self) -> dict[str, Any]:
        """Returns a flat dictionary, as in reports."""
        rows: dict[str, Any] = {f"list_in_{place}": share for place, share in self.lists.items()}
        rows |= {f"wish_{kind}": share for kind, share in self.kinds.items()}
        rows |= {"other_wishes": self.others, "forms": self.forms, "spread": self.spread}
        return {name: round(value, 4) for name, value in rows.items()}

    def kept(self, before: Obedience) -> bool:
        """Returns whether every row is at least `BAR` times its earlier value."""
        pairs = [(self.lists[place], before.lists[place]) for place in PLACES]
        pairs += [(self.others, before.others), (self.forms, before.forms), (self.spread, before.spread)]
        return all(now >= BAR * then for now, then in pairs)


@cache
def wordings() -> dict[Split, dict[Kind, dict[str, list[str]]]]:
    """Returns wordings by split, kind, and `asked` or `complaint`."""
    read = json.loads((Path(__file__).parent / "wishes.json").read_text("utf-8"))
    return {"search": read["search"], "report": read["report"], "blind": read["blind"]}


def cases(split: Split, n: int, seed: int = 0) -> list[Case]:
    """Returns `n` requests for a list at each place, half as many of the other kinds, about held-out problems;
    deterministic."""
    rng = random.Random(f"wishes {split} {seed}")
    counts: dict[Kind, int] = {kind: n if kind == "list" else (n + 1) // 2 for kind in KINDS}
    return [_case(rng, split, kind, place) for kind in KINDS for place in PLACES for _ in range(counts[kind])]


def _case(rng: random.Random, split: Split, kind: Kind, place: Place) -> Case:
    problem = random_problem(rng, "held-out")
    words = rng.choice(wordings()[split][kind]["complaint" if place == "complaint" else "asked"])
    question = {"role": "user", "content": problem.text}
    if place == "question":
        return Case(kind, place, problem, [{"role": "user", "content": f"{problem.text} {words}"}])
    if place == "system":
        return Case(kind, place, problem, [{"role": "system", "content": words}, question])
    reply = {"role": "assistant", "content": write_reply(rng, problem, OTHERWISE[kind])}
    return Case(kind, place, problem, [question, reply, {"role": "user", "content": words}])


def obedience(asked: Sequence[Case], replies: Sequence[str]) -> Obedience:
    """Returns the obedience of a model by its replies to the cases."""
    verdicts = [(case, case.obeyed(reply)) for case, reply in zip(asked, replies, strict=True)]

    def share(is_meant: Callable[[Case], bool]) -> float:
        hits = [obeyed for case, obeyed in verdicts if is_meant(case)]
        return sum(hits) / len(hits)

    kinds: dict[Kind, float] = {kind: share(lambda case, kind=kind: case.kind == kind) for kind in KINDS}
    lists: dict[Place, float] = {
        place: share(lambda case, place=place: (case.kind, case.place) == ("list", place)) for place in PLACES
    }
    texts = [detectors.visible(reply) for reply in replies]
    forms = [form(case.problem, text) for case, text in zip(asked, texts, strict=True)]
    lengths = sorted(map(len, texts))
    last = len(lengths) - 1
    return Obedience(
        lists=lists,
        others=share(lambda case: case.kind != "list"),
        kinds=kinds,
        forms=_effective_number(forms),
        spread=float(lengths[round(0.9 * last)] - lengths[round(0.1 * last)]),
    )


def form(problem: Problem, text: str) -> str:
    """Returns the reply without its numbers and the question's words."""
    known = {word.lower() for word in _WORD.findall(problem.text)} | {
        problem.name.lower(),
        problem.pronoun.lower(),
    }
    return _WORD.sub(
        lambda match: "_" if match[0].isdigit() or match[0].lower() in known else match[0].lower(), text
    )


def _effective_number(forms: Sequence[str]) -> float:
    shares = [count / len(forms) for count in Counter(forms).values()]
    return math.exp(-sum(share * math.log(share) for share in shares))
