"""What teachers read in the dreams of a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openclaw.common.plain_sentences import Pole
from openclaw.dreaming.themes import alike, same_pole
from openclaw.store.memory import Said
from openclaw.store.shares import Person


@dataclass(frozen=True)
class Wish:
    """One wish of a person, or two of different kinds together.

    Attributes:
        turn_ids: the turns that it was said after.
        language: of the person, as far as the wish and the request before it show.
        pole: what it asks for, if that is sure: the teacher then reads a plain sentence instead of the person's words.
    """

    person: Person
    text: str
    turn_ids: tuple[str, ...]
    language: str = "en"
    pole: Pole | None = None

    @classmethod
    def of_person(cls, person: Person, asked: Sequence[Said]) -> list[Wish]:
        """Wishes to dream of in turn, from the last one or two. Wishes of different kinds stand together. Two wordings of
        one wish stand alone; if the newer asks for something else of the same kind, it replaces the older."""
        if len(asked) == 2 and not alike(asked[0].text, asked[1].text):
            turns = tuple(dict.fromkeys(one.turn_id for one in asked))
            return [cls(person, "\n".join(one.text for one in asked), turns)]
        if len(asked) == 2 and not same_pole(asked[0].text, asked[1].text):
            asked = asked[-1:]
        return [cls(person, one.text, (one.turn_id,)) for one in asked]
