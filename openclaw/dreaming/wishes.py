"""A person's wishes, as teachers read them in dreams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from openclaw.common.plain_sentences import Pole, plain_sentences
from openclaw.dreaming.imperatives import is_in_words, named
from openclaw.dreaming.themes import alike, same_pole
from openclaw.store.memory import Statement
from openclaw.store.shares import Person


@dataclass(frozen=True)
class Wish:
    """One wish of a person, or two of different kinds together.

    Attributes:
        text: the person's words, or the plain sentences if the form is certain: all wordings of one form share their
            dreams.
        turn_ids: the turns after which the person wrote it.
        words: the person's last words about it.
        language: the person's language, judged by the wish and the request before it.
        poles: the wished form, if it is certain. The teacher then reads one plain sentence for each pole instead of
            the person's words.
    """

    person: Person
    text: str
    turn_ids: tuple[str, ...]
    language: str = "en"
    poles: tuple[Pole, ...] = ()
    words: str = ""

    @classmethod
    def of_person(
        cls, person: Person, asked: Sequence[Statement], asked_pole: Callable[[Statement], Pole | None]
    ) -> list[Wish]:
        """Returns the wishes for the next dreams: the last one or two. Wishes of different kinds are combined. Two
        wordings of one wish of uncertain form stay separate; if a newer one asks for something else of the same kind,
        it replaces the older.

        If the form of one of the wishes is certain, wishes of uncertain form are dropped: a small teacher that reads
        them talks about the wish instead of obeying it, and the two kinds of dreams undo each other.

        A judge sometimes guesses the opposite of what a person wrote. So a guess against two earlier wishes waits
        until it is repeated.

        Args:
            asked: the oldest first.
            asked_pole: the form that a wish certainly asks for.
        """
        sure = {one: pole for one in asked if (pole := asked_pole(one)) is not None}
        kept: list[Statement] = []
        for number, one in enumerate(asked):
            if _is_doubtful(one, asked[:number], sure):
                continue
            left = [other for other in kept if not _replaces(one, other, sure)]
            if one in sure:
                left = [other for other in left if other in sure]
            elif any(other in sure for other in left):
                continue
            kept = [*left, one]
        if kept and kept[-1] in sure:
            return [cls._of_sure(person, _last_of_each_pole(kept, sure)[-2:], sure)]
        kept = kept[-2:]
        if len(kept) == 2 and not alike(kept[0].text, kept[1].text):
            turns = tuple(dict.fromkeys(one.turn_id for one in kept))
            text = "\n".join(one.text for one in kept)
            return [cls(person, text, turns, words=kept[-1].text)]
        return [cls(person, one.text, (one.turn_id,), words=one.text) for one in kept]

    @classmethod
    def _of_sure(
        cls, person: Person, statements: Sequence[Statement], sure: Mapping[Statement, Pole]
    ) -> Wish:
        poles = tuple(sure[one] for one in statements)
        turns = tuple(dict.fromkeys(one.turn_id for one in statements))
        text = "\n".join(plain_sentences(pole, "en")[0] for pole in poles)
        return cls(person, text, turns, poles=poles, words=statements[-1].text)


def _last_of_each_pole(kept: Sequence[Statement], sure: Mapping[Statement, Pole]) -> list[Statement]:
    """Returns the newest statement of each form, in the order in which the forms were first requested."""
    return list({sure[one]: one for one in kept}.values())


def _replaces(newer: Statement, older: Statement, sure: Mapping[Statement, Pole]) -> bool:
    """Returns whether the newer wish asks for something else of the same kind."""
    if older not in sure:
        return newer not in sure and alike(older.text, newer.text) and not same_pole(older.text, newer.text)
    # The nearest shipped wishes of an uncertain one are right too seldom.
    return newer in sure and sure[newer] != sure[older] and _is_same_kind(older, newer, sure)


def _is_doubtful(one: Statement, before: Sequence[Statement], sure: Mapping[Statement, Pole]) -> bool:
    """Returns whether a judge guessed the form, and it contradicts at least two earlier wishes and repeats none."""
    if one not in sure or is_in_words(one.text, sure[one]):
        return False
    same_kind = [sure[other] for other in before if other in sure and _is_same_kind(other, one, sure)]
    return sure[one] not in same_kind and len(same_kind) >= 2


def _is_same_kind(older: Statement, newer: Statement, sure: Mapping[Statement, Pole]) -> bool:
    """Returns whether two wishes of certain form are about the same aspect of an answer."""
    return named(sure[older]).split()[0] == named(sure[newer]).split()[0]
