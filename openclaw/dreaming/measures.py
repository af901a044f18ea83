"""Chooses the answers to keep; measures how far a wish is learned, and whether the teacher can answer with it.

The gain of an answer is log p(answer | with the wish) - log p(answer | without), in nats.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openclaw.common.answer_form import has_form
from openclaw.common.plain_sentences import Pole
from openclaw.methods.hinted_prompt import HINT_HEADER
from openclaw.store.dreams import Dream
from openclaw.store.shares import Person

KEEP = 0.4
"""Share of the answers to a wish that are kept."""
UNLIKELY = 0.5
"""Share that is left out before, the least likely ones without the wish: of a small model these talk about the wish."""
QUOTED = 4
"""Words of a wish in a row that an answer must not repeat."""
OBEYED = 0.2
"""Share of the answers to a plain sentence that must have the form it asks for: what the teacher cannot do with it, the
policy must not learn."""
LEARNED = 0.9
"""Share of held-out answers that show a wish, from which on it is only maintained."""
LEAST_GAP = 1.0
"""Nats. A wish that takes less from answers without it cannot be seen in them."""
LEAST_OBEYED = 0.25
"""Share of requests for the contrary that the first answers must obey, so that a loss can be seen."""
KNOWN_FACTS, MAY_LOSE = 3, 1
"""Facts that the model must know for a statement, and of those it may lose with the wish."""
LEAST_WEIGHT = 0.5
"""A wish whose teacher keeps a smaller share of the facts is not dreamt of."""


About = tuple[Person, str | None]


@dataclass(frozen=True)
class Scored:
    """An answer with its gain; likely: mean log-prob of its tokens without the wish."""

    dream: Dream
    gain: float
    likely: float


def most_telling(answers: Sequence[Scored], sampled: Counter[About]) -> list[Dream]:
    """Of the answers to each wish of each person those that are kept, with their gains, in their order.

    Args:
        answers: those that may be kept.
        sampled: how many there were of each wish, of which the share `KEEP` is kept.
    """
    kept: list[Scored] = []
    for about in dict.fromkeys(about_of(one.dream) for one in answers):
        own_answers = [one for one in answers if about_of(one.dream) == about]
        count = max(1, round(sampled[about] * KEEP))
        likely = sorted(own_answers, key=lambda one: -one.likely)[
            : max(count, round(len(own_answers) * (1 - UNLIKELY)))
        ]
        best = {id(one) for one in sorted(likely, key=lambda one: -one.gain)[:count]}
        kept += [one for one in own_answers if id(one) in best]
    return [dataclasses.replace(one.dream, gain=one.gain) for one in kept]


def shows(pole: Pole, answer: str, is_cut: bool) -> bool:
    """Returns whether an answer has the form that was asked for. One that was cut is not short."""
    return has_form(pole, answer) and not (is_cut and pole == "short")


def about_of(dream: Dream) -> About:
    """Whose wish it is about, and which one."""
    return dream.person, dream.wish


def quotes(answer: str, *wishes: str) -> bool:
    """Whether an answer repeats the mark of a hint, or words of one of the wishes in a row: the wish makes such answers
    the most likely of all, and they answer nothing."""
    rows = _rows(answer)
    return (
        not all(rows.isdisjoint(_rows(wish)) for wish in wishes)
        or HINT_HEADER.casefold() in answer.casefold()
    )


def _rows(text: str) -> set[tuple[str, ...]]:
    words = text.casefold().split()
    return {tuple(words[at : at + QUOTED]) for at in range(len(words) - QUOTED + 1)}


def names(answer: str, fact: str) -> bool:
    """Returns whether an answer names a fact, as a word of its own or its plural where it is written in ASCII."""
    folded_answer, folded_fact = answer.casefold(), fact.casefold()
    if not folded_fact.isascii():
        return folded_fact in folded_answer
    return re.search(rf"(?<![a-z0-9]){re.escape(folded_fact)}(?:e?s)?(?![a-z0-9])", folded_answer) is not None


def learned(looks: Sequence[Dream]) -> float | None:
    """Share of the newest answers to held-out prompts without the wish that show it: those that the wish makes less than
    half as unlikely as it made the first ones. For a wish whose form is not known; `share_of_form` is the other.

    The live weights score: once they do the same with and without a wish, gains are near 0.

    Args:
        looks: a wish's looks of several rollouts, the oldest first; those of the first were made before it was learned.

    Returns:
        None with fewer than two looks, or if the wish could not be seen in the first.
    """
    rollouts = sorted({one.rollout_id for one in looks})
    gains = {
        at: [one.gain for one in looks if one.rollout_id == at and one.gain is not None] for at in rollouts
    }
    if len(rollouts) < 2 or not gains[rollouts[0]] or not gains[rollouts[-1]]:
        return None
    before = sum(gains[rollouts[0]]) / len(gains[rollouts[0]])
    if before > -LEAST_GAP:
        return None
    now = gains[rollouts[-1]]
    return sum(gain > before / 2 for gain in now) / len(now)


def share_of_form(looks: Sequence[Dream], has_form: Callable[[Dream], bool]) -> float | None:
    """Share of the newest answers to held-out prompts that have the form that is wished for; None without a look.

    Args:
        looks: a wish's looks of several rollouts.
    """
    newest = max((one.rollout_id for one in looks), default=None)
    now = [has_form(one) for one in looks if one.rollout_id == newest]
    return sum(now) / len(now) if now else None


def share_kept(looks: Sequence[Dream], obeys: Callable[[Dream], bool]) -> float | None:
    """Requests for the contrary that the newest answers obey, as a share of those that the first ones obeyed, at most 1.

    Args:
        looks: answers to the same requests in several rollouts.

    Returns:
        None with fewer than two rollouts, or if too few of the first answers obeyed.
    """
    rollouts = sorted({one.rollout_id for one in looks})
    if len(rollouts) < 2:
        return None
    first, newest = (
        [obeys(one) for one in looks if one.rollout_id == at] for at in (rollouts[0], rollouts[-1])
    )
    if sum(first) < LEAST_OBEYED * len(first):
        return None
    return min(1.0, sum(newest) / len(newest) * len(first) / sum(first))


def weight(facts: Sequence[Dream]) -> float:
    """Weight of a wish's dreams: 1, or less if the teacher that reads the wish loses facts that it knows without it. What
    the teacher cannot do, the policy must not learn.

    Args:
        facts: answers to questions with (`taught_ids` differs from `prompt_ids`) and without the wish; gain 1 if right.
    """
    plain = {one.item: bool(one.gain) for one in facts if one.taught_ids == one.prompt_ids}
    hinted = {one.item: bool(one.gain) for one in facts if one.taught_ids != one.prompt_ids}
    both = plain.keys() & hinted.keys()
    # What the wish gains counts too: a small model answers the one or the other question right by chance.
    known, kept = sum(plain[item] for item in both), sum(hinted[item] for item in both)
    if known < KNOWN_FACTS or known - kept <= MAY_LOSE:
        return 1.0
    share = kept / known
    return share if share >= LEAST_WEIGHT else 0.0
