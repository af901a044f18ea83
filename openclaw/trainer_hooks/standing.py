"""Standing wishes: what people asked for lately, in the teacher's prompt of every turn, and not of the one alone that a
complaint was about.

A hint teaches the turn behind which it was said. The next turn of somebody else brings another hint, whose teacher knows
nothing of the first and draws the policy back; and a turn that pleased has no teacher at all. With --standing-wishes a
teacher reads what its person asked for last (`person`), or what everybody did who shares the model, with the turn's own
person behind the others (`people`). It is context distillation (Snell et al. 2022, arXiv 2209.15189) of what stands in
nobody's prompt.

A wish is no habit where a request asks for something in so many words. A complaint that repeats what its own request
asked for stands nowhere else, and a turn whose request asks for a form (`openclaw.common.wish_themes`) is taught nothing
but what was said about it.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from openclaw.common.wish_themes import asked_themes
from openclaw.errors import ConfigError, HintError
from openclaw.methods.hinted_prompt import HintedPrompts, prompts_of
from openclaw.methods.method import hints_of
from openclaw.store import RolloutStore
from openclaw.store.shares import Person
from openclaw.trainer_hooks.companions import teaches_in_trainer
from openclaw.trainer_hooks.trust import Trust, without_those_below
from openclaw.types import SampleRecord, Turn

PEOPLE, EACH = 4, 2
"""Of how many people, those who asked last, a teacher knows wishes, and how many of each. With one of each, whoever
complained about a list lost the warm tone that they had asked for before."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("standing wishes", "What teachers know beside the hint of a turn.")
    group.add_argument(
        "--standing-wishes",
        choices=("none", "person", "people"),
        default="none",
        help="the teacher of every turn reads the last two wishes of its person, or of each of the people who share the "
        "model (of turns that were liked only where others asked); needs a method with its teacher in the trainer",
    )
    group.add_argument(
        "--standing-liked",
        action="store_true",
        help="with --standing-wishes, a liked turn is taught what its own person asked for too: learned sooner and more "
        "fully, and explicit wishes are obeyed less in the meantime",
    )


def check(args: Any) -> None:
    """Refuses standing wishes that no teacher would read. Raises ConfigError."""
    if not stand(args) and getattr(args, "standing_liked", False):
        raise ConfigError(
            "--standing-liked says what --standing-wishes person or people teaches; add that, or drop it"
        )
    if stand(args) and not teaches_in_trainer(args):
        raise ConfigError(
            f"--standing-wishes {args.standing_wishes} needs a method with hints and its teacher in the trainer: "
            "nothing else would read them; drop it, or --teacher-source inference"
        )


def stand(args: Any) -> bool:
    return getattr(args, "standing_wishes", "none") != "none"


@dataclass(frozen=True)
class Teachers:
    """What the teachers of a batch read.

    Attributes:
        wishes: of each person what they asked for last, the oldest first; who asked last is the last.
        everybody: teachers know the wishes of other people too.
        liked: turns that their person liked are taught that person's wishes too.
    """

    store: RolloutStore
    prompts: HintedPrompts
    wishes: dict[Person, list[str]]
    everybody: bool
    liked: bool

    @classmethod
    def of(
        cls, args: Any, store: RolloutStore, records: Sequence[SampleRecord], trust: Trust | None = None
    ) -> Teachers:
        """With what was asked for up to the judgements of this batch, by people who are trusted."""
        turns = [record.turn.id for record in records]

        def ask(apart: Collection[Person]) -> dict[Person, list[str]]:
            return store.memory.asked_for(turns, PEOPLE, EACH, apart)

        wishes = without_those_below(trust, ask, lambda found: found)
        prompts, everybody = prompts_of(str(args.hf_checkpoint)), args.standing_wishes == "people"
        return cls(store, prompts, wishes, everybody, args.standing_liked)

    def taught(self, record: SampleRecord, row: dict[str, Any]) -> dict[str, Any]:
        """The sample's row with these teachers. It keeps those that it has where nobody asked for anything, and where its
        person liked the turn and nobody else asked: what it was to be like it is, and to teach that again only makes the
        habit overrule explicit wishes."""
        count = len(row.get("teacher_tokens_candidates") or ())
        liked = not count and not self.liked and _is_liked(record)
        if liked and not self._of_others(record.turn.person):
            return row
        own = hints_of(self.store.judgements.of_turn(record.turn.id)) if count else []
        found = self.of_turn(record.turn, own[:count] if count > 1 else own[-1:])
        return row | {"teacher_tokens_candidates": found} if found else row

    def of_turn(self, turn: Turn, own: Sequence[str]) -> list[list[int]]:
        """Ids of what the teachers of a turn read, one for each of its own hints, else one; none where nobody asked for
        anything, or no such prompt can be written. A turn whose request asks for a form in so many words is taught
        no wish but its own hints: also a wish of which no theme is known may be about that form."""
        before = self._of_others(turn.person) + self.wishes.get(turn.person, [])
        if before and asked_themes(self.store.memory.request_of(turn.id)):
            before = []
        found = []
        for last in [[hint] for hint in own] or [[]]:
            read = dict.fromkeys([*(wish for wish in before if wish not in last), *last])
            known = [wish for wish in read if wish not in (turn.memory or ())]
            try:
                found += [self.prompts.candidate(turn, "\n".join(known))] if known else []
            except HintError:
                continue
        return found

    def _of_others(self, person: Person) -> list[str]:
        """What others asked for, as far as teachers are to know it."""
        others = self.wishes.items() if self.everybody else ()
        return [wish for other, said in others if other != person for wish in said]


def _is_liked(record: SampleRecord) -> bool:
    return float(record.metadata.get("eval_score", 0.0)) > 0
