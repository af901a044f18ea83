"""Anchors that combine the questions of a person's dreams with a request for the opposite of the preference: for a
long answer, if the person prefers short ones.

Such an anchor differs from a dream only by the request in the prompt, so the policy must read it. Without them one
update for short answers cost SmolLM2-135M three of five requests for long ones (lab/findings/dreaming.md).

A mismatch is the same prompt with the dream's short answer. A policy that learned short answers begins with one even
if a long one is requested, and ends it at a point that the first model's own answers never reach.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Mapping, Sequence
from typing import cast

from openclaw.common.plain_sentences import Pole
from openclaw.dreaming import measures
from openclaw.dreaming.anchors import LONG, AnchorPrompt, placed
from openclaw.dreaming.texts import ENGLISH, QUESTION, Place, Prompt, ShippedWish, frames, wishes
from openclaw.store.dreams import Dream
from openclaw.types import Message

_CONTRARY: Mapping[Pole, tuple[str, str]] = {
    "short": ("length", LONG),
    "long": ("length", "short"),
    "prose": ("layout", "list"),
    "list": ("layout", "prose"),
    "greet": ("greeting", "no_greeting"),
    "no_greeting": ("greeting", "greet"),
}
"""Theme and pole of the shipped wishes that ask for the opposite."""
WORDINGS: Mapping[Place, int] = {"question": 6, "system": 4, "complaint": 6}
"""Number of requests combined with a question, by their place; one answer of the first model is used for all."""
HELD_OUT_EVERY = 5
"""Every fifth of the shipped requests is excluded from contrasts and tests whether such requests are still obeyed."""
FEW = 40
"""Number of requests of a language, at all places, from which no English ones are added."""
FULL = 3 / 4
"""Share of the longest answer from which an answer counts as long."""
_MISMATCH = " mismatch"
"""Suffix of the theme of a mismatch."""


def theme_of(pole: Pole) -> str:
    """Returns the theme of this pole's contrasts in the bank."""
    return " ".join(_CONTRARY[pole])


def is_contrast(theme: str) -> bool:
    """Returns whether the anchors of a theme are contrasts."""
    return " " in theme


def is_mismatch(theme: str) -> bool:
    """Returns whether the anchors of a theme are mismatches."""
    return theme.endswith(_MISMATCH)


def mismatches(held: Sequence[Dream], dreams: Sequence[Dream]) -> list[Dream]:
    """Returns the prompts of contrasts with the answers of dreams to the same questions.

    Complaints are left out: their prompt contains the dream's answer, and with them the policy obeyed fewer
    complaints (lab/findings/dreaming.md).

    Args:
        held: contrasts of one theme.
        dreams: of the wish that they contradict.
    """
    answers: dict[str, list[Dream]] = {}
    for dream in dreams:
        answers.setdefault(dream.item, []).append(dream)
    mismatched: list[Dream] = []
    for one in held:
        wish, _, question = one.item.partition("-")
        if question in answers and _places().get(wish) != "complaint":
            ids = random.Random(one.item).choice(answers[question]).completion_ids
            mismatched.append(dataclasses.replace(one, theme=one.theme + _MISMATCH, completion_ids=ids))
    return mismatched


@functools.cache
def _places() -> Mapping[str, Place]:
    return {one.id: one.place for one in (*wishes(), *frames())}


def asks_for_long(theme: str) -> bool:
    """Returns whether contrasts of this theme ask for long answers."""
    return theme.split()[1] == LONG


def prompts_of(question: str, item: str, answer: str, pole: Pole, language: str) -> list[AnchorPrompt]:
    """Returns a question of a dream with requests for the opposite: after it, before it, in the system message, and
    as a complaint about the dream's own answer.

    Args:
        item: id of the question.
        answer: the dream's answer, in the preferred form.
        pole: the preferred form.
    """
    rng = random.Random(f"contrasts of {item}")
    return [
        AnchorPrompt(f"{wish.id}-{item}", theme_of(pole), wish.pole == LONG, _asked(wish, question, answer))
        for place, count in WORDINGS.items()
        for wish in _drawn(
            rng, [one for one in _contrary_wishes(pole, language) if one.place == place], count
        )
    ]


def held_out_prompts(
    questions: Sequence[Prompt], pole: Pole, language: str, counts: Mapping[Place, int]
) -> list[AnchorPrompt]:
    """Returns prompts with requests for the opposite that are in no contrast, the same each time.

    Args:
        questions: everyday prompts that are in no dream.
        counts: number of prompts by the place of their request.
    """
    prompts: list[AnchorPrompt] = []
    for place, count in counts.items():
        there = [one for one in _contrary_wishes(pole, language, held_out=True) if one.place == place]
        random.Random(f"order of {place}").shuffle(there)
        for number in range(count if there else 0):
            wish, asked = there[number % len(there)], questions[len(prompts) % len(questions)]
            messages = _asked(wish, wish.question or asked.text, wish.earlier)
            prompts.append(AnchorPrompt(f"{wish.id}-{asked.id}", theme_of(pole), wish.pole == LONG, messages))
    return prompts


def obeys(theme: str, answer: str, tokens: int, longest: int) -> bool:
    """Returns whether an answer has the form requested by contrasts of this theme.

    Args:
        tokens: length of the answer; longest: its limit in tokens.
    """
    pole = theme.split()[1]
    if pole == LONG:
        return tokens >= FULL * longest
    return measures.shows(cast(Pole, pole), answer, is_cut=tokens >= longest)


@functools.cache
def _contrary_wishes(pole: Pole, language: str, held_out: bool = False) -> tuple[ShippedWish, ...]:
    """Returns the shipped wishes for the opposite in a language, with English ones if there are few.

    Args:
        held_out: return those excluded from contrasts, instead of the others.
    """
    theme, contrary = _CONTRARY[pole]
    contrary_wishes = [one for one in (*wishes(), *frames()) if (one.theme, one.pole) == (theme, contrary)]
    kept_out: set[str] = set()
    for place in WORDINGS:
        ids = [one.id for one in contrary_wishes if one.place == place]
        random.Random(f"held out at {place}").shuffle(ids)
        kept_out.update(ids[::HELD_OUT_EVERY])
    there = [one for one in contrary_wishes if (one.id in kept_out) == held_out]
    own = [one for one in there if one.language == language]
    few = FEW // HELD_OUT_EVERY if held_out else FEW
    return tuple(own if len(own) >= few else [one for one in there if one.language in (language, ENGLISH)])


def _drawn(rng: random.Random, wishes: Sequence[ShippedWish], count: int) -> list[ShippedWish]:
    """Returns `count` wishes, half of them frames if there are enough, because several times more frames are shipped."""
    framed = [one for one in wishes if _is_frame(one)]
    plain = [one for one in wishes if not _is_frame(one)]
    around = rng.sample(framed, min(len(framed), max(count // 2, count - len(plain))))
    return around + rng.sample(plain, min(len(plain), count - len(around)))


def _asked(wish: ShippedWish, question: str, answer: str) -> tuple[Message, ...]:
    return placed(wish, question, answer, _in_one_message(wish, question))


def _in_one_message(wish: ShippedWish, question: str) -> str:
    """Returns a question and a request as a person may write both: the request before or after the question, in a
    paragraph of its own or not, around the question, or without capitals and signs."""
    rng = random.Random(f"{wish.id} with {question}")
    if _is_frame(wish):
        as_it_is, small = QUESTION
        return wish.text.replace(as_it_is, question).replace(small, _small(question))
    separator = rng.choice((" ", " ", "\n", "\n\n", "\n\n"))
    whole = separator.join(rng.choice(((question, wish.text), (wish.text, question))))
    careless = f"{_without_end(question)} {_without_end(wish.text)}".lower()
    before = f"{_without_end(wish.text)}: {_small(question)}"
    return rng.choice((whole, whole, whole, careless, before))


def _is_frame(wish: ShippedWish) -> bool:
    """Returns whether the request has a place for the question."""
    return any(slot in wish.text for slot in QUESTION)


def _small(text: str) -> str:
    """Returns a text with a small first letter, if it does not begin with I or an abbreviation."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _without_end(text: str) -> str:
    return text.rstrip(".!?")
