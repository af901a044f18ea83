"""Chooses the prompts of anchors, and the order in which they are sampled.

An anchor is one of three prompts: an explicit request (in the question, in the system message or as a complaint), a
prompt that is no everyday question, or a simple question whose answer the model knows. Training keeps the policy
close to its teacher's answer to the same prompt. Anchors of the wish's own theme come first, including the opposite
poles, because learning a habit harms these first. Anchors use the same questions as dreams, so an anchor and a dream
differ only by the wish in the prompt.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import TypeVar

from openclaw.dreaming.texts import ENGLISH, Prompt, ShippedWish, everyday, facts, others, wishes
from openclaw.types import Message

T = TypeVar("T")

OTHER = "other"
"""Theme of prompts that are no everyday questions."""
FACT = "fact"
"""Theme of a question with a known answer."""
LONG = "long"
"""Pole of wishes for long answers."""
QUESTIONS_EACH = 2
"""Number of questions combined with each shipped wish, unless the wish has its own."""
FACTS = 12
"""Number of questions with known answers that are asked with and without a new wish."""
_OWN, _APART = "own", "apart"
IN_TURN = (_OWN, FACT, _OWN, OTHER, _OWN, FACT, _APART, _OWN)
"""Order of eight anchors: of the wish's themes, of other themes, of other prompts, and facts. Without facts, a model
of 135 M parameters that learned brevity lost a third of the facts that it knew (lab/findings/dreaming.md)."""


@dataclass(frozen=True)
class AnchorPrompt:
    """The prompt of an anchor. `id` is the same for equal texts; `is_long`: the prompt asks for a long answer."""

    id: str
    theme: str
    is_long: bool
    messages: tuple[Message, ...] = field(hash=False)


@functools.cache
def dreamt_prompts() -> tuple[Prompt, ...]:
    """Returns everyday prompts in the order of their use in dreams, mixed by kind and language."""
    mixed = list(everyday())
    random.Random("prompts to dream on").shuffle(mixed)
    return tuple(mixed)


@functools.cache
def by_theme(language: str = "en") -> Mapping[str, tuple[AnchorPrompt, ...]]:
    """Returns all anchors by theme, in the order in which they are sampled: poles and places in turn, three of four
    in this language or in English."""
    prompts: dict[str, list[list[AnchorPrompt]]] = {}
    poles: dict[tuple[str, str], list[ShippedWish]] = {}
    for wish in wishes():
        poles.setdefault((wish.theme, wish.pole), []).append(wish)
    for (theme, pole), pole_wishes in sorted(poles.items()):
        random.Random(f"anchors of {theme} {pole}").shuffle(pole_wishes)
        asked = [
            (wish.language, _asked(wish, turn)) for turn in range(QUESTIONS_EACH) for wish in pole_wishes
        ]
        prompts.setdefault(theme, []).append(_mostly_in(language, asked))
    mixed = {theme: tuple(dict.fromkeys(_in_turn(columns))) for theme, columns in prompts.items()}
    kinds = [(one.language, AnchorPrompt(one.id, OTHER, False, one.messages)) for one in others()]
    random.Random("anchors of other kinds").shuffle(kinds)
    return mixed | {OTHER: tuple(_mostly_in(language, kinds))}


@functools.cache
def _poles() -> Mapping[str, str]:
    """Returns theme and pole by the id of a shipped wish."""
    return {wish.id: f"{wish.theme} {wish.pole}" for wish in wishes()}


def mostly_contrary(there: Sequence[T], poles: Collection[str], id_of: Callable[[T], str]) -> list[T]:
    """Returns anchors in their order, but with only every fourth asking for the learned preference itself, as long as
    there are others: a habit harms requests against it, not requests for it.

    Args:
        poles: of the preference, as `themes.pole_of` names them.
        id_of: the id of an anchor.
    """
    asks = [(_poles().get(id_of(one).partition("-")[0]) in poles, one) for one in there]
    return _three_to_one([one for same, one in asks if not same], [one for same, one in asks if same])


def next_anchors(
    themes: Mapping[str, float],
    language: str,
    known: Collection[str],
    count: int,
    poles: Collection[str] = (),
) -> list[AnchorPrompt]:
    """Returns up to `count` more anchors to sample for a preference with these themes, in the proportions of `IN_TURN`.

    Args:
        language: the person's language.
        known: ids of existing anchors.
        poles: the poles of the preference; see `mostly_contrary`.
    """
    left = {
        theme: iter(
            mostly_contrary([one for one in anchors if one.id not in known], poles, lambda one: one.id)
        )
        for theme, anchors in by_theme(language).items()
    }
    prompts: list[AnchorPrompt] = []
    rng = random.Random(f"anchors for {sorted(themes)}")
    for theme in _themes_in_turn(rng, themes, sorted(left)):
        if len(prompts) == count or not left:
            break
        if theme in left:
            one = next(left[theme], None)
            if one is None:
                del left[theme]
            else:
                prompts.append(one)
    return prompts


def next_facts(language: str, known: Collection[str], count: int) -> list[Prompt]:
    """Returns up to `count` further questions with known answers, three of four in the person's language or in
    English.

    Args:
        known: ids of questions that were asked.
    """
    return [one for one in _facts(language) if one.id not in known][:count]


@functools.cache
def _facts(language: str) -> tuple[Prompt, ...]:
    mixed = [(one.language, one) for one in facts() if one not in asked_with_wishes(ENGLISH)]
    random.Random("facts to hold").shuffle(mixed)
    return tuple(_mostly_in(language, mixed))


def asked_with_wishes(language: str) -> list[Prompt]:
    """Returns questions that test whether a teacher that reads a wish still knows facts: in this language if there
    are enough, otherwise in English."""
    own = [one for one in facts() if one.language == language]
    return (own if len(own) >= FACTS else [one for one in facts() if one.language == ENGLISH])[:FACTS]


def drawn_themes(
    rng: random.Random,
    themes: Mapping[str, float],
    there: Sequence[str],
    count: int,
    contrasts: Sequence[str] = (),
) -> list[str]:
    """Draws a theme for each of `count` anchors of a step, in the proportions of `IN_TURN`, from the available ones.

    Args:
        contrasts: available themes that replace the wish's own ones (`contrasts.py`).
    """
    drawn: list[str] = []
    for theme in _themes_in_turn(rng, themes, there, contrasts):
        if len(drawn) == count:
            break
        if theme in there:
            drawn.append(theme)
    return drawn


def _themes_in_turn(
    rng: random.Random, themes: Mapping[str, float], there: Sequence[str], contrasts: Sequence[str] = ()
) -> Iterator[str]:
    """Yields themes without end (none if none is available), the wish's own ones by their weights."""
    wishes_there = [theme for theme in there if theme not in (OTHER, FACT, *contrasts)]
    own = [theme for theme in wishes_there if theme in themes] or wishes_there
    contrasting = [theme for theme in wishes_there if theme not in own] or own
    # Without a known theme all are drawn equally often.
    weights = [themes.get(theme, 1.0) for theme in own]
    while there:
        for share in IN_TURN:
            if share == FACT:
                yield FACT
            elif share == _OWN and contrasts:
                yield rng.choice(contrasts)
            elif share == OTHER or not own:
                yield OTHER
            elif contrasts:
                yield rng.choice(wishes_there)
            elif share == _OWN:
                yield rng.choices(own, weights)[0]
            else:
                yield rng.choice(contrasting)


def _asked(wish: ShippedWish, turn: int) -> AnchorPrompt:
    """Returns the wish with one of the prompts of dreams, in its language if there is one."""
    rng = random.Random(wish.id)
    if wish.question:
        return AnchorPrompt(wish.id, wish.theme, wish.pole == LONG, _behind(rng, wish, wish.question))
    same = [one for one in dreamt_prompts() if one.language == wish.language]
    same = same if len(same) >= QUESTIONS_EACH else list(dreamt_prompts())
    # The first of them are used first in dreams.
    chosen = same[(int(rng.expovariate(1 / 24)) + turn) % len(same)]
    messages = _behind(rng, wish, chosen.text)
    return AnchorPrompt(f"{wish.id}-{chosen.id}", wish.theme, wish.pole == LONG, messages)


def placed(wish: ShippedWish, question: str, answer: str, both: str) -> tuple[Message, ...]:
    """Returns a question with a request at its place.

    Args:
        answer: the answer that a complaint is about.
        both: question and request in one message.
    """
    if wish.place == "system":
        return {"role": "system", "content": wish.text}, {"role": "user", "content": question}
    if wish.place == "complaint":
        reply = {"role": "assistant", "content": answer}
        return {"role": "user", "content": question}, reply, {"role": "user", "content": wish.text}
    return ({"role": "user", "content": both},)


def _behind(rng: random.Random, wish: ShippedWish, question: str) -> tuple[Message, ...]:
    both = f"{question}{rng.choice((' ', chr(10) * 2))}{wish.text}"
    return placed(wish, question, wish.earlier, both)


def _mostly_in(language: str, anchors: Sequence[tuple[str, T]]) -> list[T]:
    """Returns three anchors in this language or in English, then one in another language, as long as there are
    both."""
    near = [one for spoken, one in anchors if spoken in (language, "en")]
    return _three_to_one(near, [one for spoken, one in anchors if spoken not in (language, "en")])


def _three_to_one(many: Sequence[T], few: Sequence[T]) -> list[T]:
    """Returns one of the `few` after every third of the `many`, then the rest of both."""
    left, ordered = iter(few), []
    for number, one in enumerate(many, 1):
        ordered += [one, *itertools.islice(left, 1 if number % 3 == 0 else 0)]
    return [*ordered, *left]


def _in_turn(columns: Sequence[Sequence[AnchorPrompt]]) -> Iterator[AnchorPrompt]:
    """Yields one of each column in turn, until the longest ends."""
    return (one for one in chain.from_iterable(zip_longest(*columns)) if one is not None)
