"""The held-out prompts of reports, in five classes. They must never be used for training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from openclaw.types import Message

Group = Literal["in_scope", "near_scope", "unrelated", "opposite", "capability"]
Place = Literal["question", "system", "complaint"]
GROUPS: tuple[Group, ...] = ("in_scope", "near_scope", "unrelated", "opposite", "capability")
PLACES: tuple[Place, ...] = ("question", "system", "complaint")
FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Item:
    """A held-out prompt.

    Attributes:
        writer: author of the prompt, because people write in different ways.
        answer: text that a correct reply contains (class capability).
        form: regular expression that an obedient reply matches; None: the check for `pole` (class opposite).
        pole: requested form, such as `long` (class opposite).
        place: part of the prompt that requests it (class opposite).
    """

    id: str
    group: Group
    writer: str
    messages: list[Message]
    answer: str | None = None
    form: str | None = None
    pole: str | None = None
    place: Place | None = None

    @classmethod
    def read(cls, row: dict[str, Any]) -> Item:
        """Returns the prompt in a row of a data file."""
        rest = {name: row.get(name) for name in ("answer", "form", "pole", "place")}
        return cls(row["id"], row["class"], row["writer"], row["messages"], **rest)


@cache
def all_items() -> tuple[Item, ...]:
    """Returns all prompts, ordered by class."""
    lines = [
        line
        for group in GROUPS
        for line in (FOLDER / f"report_{group}.jsonl").read_text("utf-8").splitlines()
    ]
    return tuple(Item.read(json.loads(line)) for line in lines)


def chosen(items: Sequence[Item], most: int) -> list[Item]:
    """Returns up to `most` prompts of each class (opposite: for each pole and place); 0: all.

    The choice depends only on the ids. A smaller choice is a subset of a larger one.
    """
    if most <= 0:
        return list(items)
    places: dict[tuple[object, ...], list[Item]] = {}
    for item in sorted(items, key=lambda item: hashlib.sha256(item.id.encode()).digest()):
        places.setdefault((item.group, item.pole, item.place), []).append(item)
    chosen_ids = {item.id for of_place in places.values() for item in of_place[:most]}
    return [item for item in items if item.id in chosen_ids]
