"""Selects the answers to keep; measures how far a wish is learned, and whether the teacher can follow it.

The gain of an answer is log p(answer | with the wish) - log p(answer | without), in nats.
"""

from __future__ import annotations

import dataclasses
import math
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
"""Share that is removed first, the answers least likely without the wish: those of a small model talk about the
wish."""
QUOTED = 4
"""Number of consecutive words of a wish that an answer must not repeat."""
OBEYED = 0.2
"""Share of the answers to a plain sentence that must have the requested form: the policy must not learn a form that
the teacher cannot produce."""
LEARNED = 0.9
"""Share of held-out answers that show a wish from which the wish is only maintained."""
KEPT = 0.9
"""Kept share of requests for the opposite below which anchors get more weight."""
MORE, LESS = 1.25, 0.75
LEAST_FACTOR, MOST_FACTOR = 0.25, 2.0
"""Changes of the anchors' weight after an update, and its limits."""
LEAST_GAP = 1.0
"""Nats. If a wish reduces the log-prob of answers without it by less, it cannot be detected in them."""
LEAST_OBEYED = 0.25
"""Share of requests for the opposite that the first answers must obey, so that a loss can be detected."""
KNOWN_FACTS, MAY_LOSE = 3, 1
"""Facts that the model must know for a result, and the number that it may lose with the wish."""
LEAST_WEIGHT = 0.5
"""Share of the facts that a teacher with the wish must keep; below it there are no dreams of the wish."""


About = tuple[Person, str | None]


@dataclass(frozen=True)
class Scored:
    """An answer with its gain; likely: mean log-prob of its tokens without the wish."""

    dream: Dream
    gain: float
    likely: float


def answers_to_keep(answers: Sequence[Scored], sampled: Counter[About]) -> list[Dream]:
    """Returns the kept answers of each wish of each person with their gains, in order.

    Args:
        answers: the candidates.
        sampled: number of answers sampled for each wish, of which the share `KEEP` is kept.
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
    """Returns whether an answer has the requested form. A truncated answer is not short."""
    return has_form(pole, answer) and not (is_cut and pole == "short")


def about_of(dream: Dream) -> About:
    """Returns the person and the wish of a dream."""
    return dream.person, dream.wish


def quotes(answer: str, *wishes: str) -> bool:
    """Returns whether an answer repeats the mark of a hint, or consecutive words of one of the wishes: the wish makes
    such answers the most likely of all, and they answer nothing."""
    rows = _rows(answer)
    return (
        not all(rows.isdisjoint(_rows(wish)) for wish in wishes)
        or HINT_HEADER.casefold() in answer.casefold()
    )


def _rows(text: str) -> set[tuple[str, ...]]:
    words = text.casefold().split()
    return {tuple(words[at : at + QUOTED]) for at in range(len(words) - QUOTED + 1)}


def names(answer: str, fact: str) -> bool:
    """Returns whether an answer contains a fact as a separate word, or its plural if it is ASCII."""
    folded_answer, folded_fact = answer.casefold(), fact.casefold()
    if not folded_fact.isascii():
        return folded_fact in folded_answer
    return re.search(rf"(?<![a-z0-9]){re.escape(folded_fact)}(?:e?s)?(?![a-z0-9])", folded_answer) is not None


def first_and_newest(looks: Sequence[Dream]) -> dict[int, list[Dream]]:
    """Returns, for each rollout, the answers of the first one and its own: all that a share after it depends on."""
    of_rollout: dict[int, list[Dream]] = {}
    for one in looks:
        of_rollout.setdefault(one.rollout_id, []).append(one)
    if not of_rollout:
        return {}
    first = min(of_rollout)
    return {at: own if at == first else [*of_rollout[first], *own] for at, own in of_rollout.items()}


def learned(looks: Sequence[Dream]) -> float | None:
    """Returns the share of the newest answers to held-out prompts without the wish that show it: the wish reduces
    their likelihood by less than half as much as that of the first ones. It is for wishes of unknown form; for others
    see `share_of_form`.

    The live weights score: once they answer the same with and without a wish, gains are near 0.

    Args:
        looks: answers to held-out prompts in several rollouts, the oldest first; those of the first rollout precede
            learning.

    Returns:
        None with fewer than two rollouts, or if the first answers could not show the wish.
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
    """Returns the share of the newest answers to held-out prompts with the wished form; None without answers.

    Args:
        looks: answers to held-out prompts in several rollouts.
    """
    newest = max((one.rollout_id for one in looks), default=None)
    now = [has_form(one) for one in looks if one.rollout_id == newest]
    return sum(now) / len(now) if now else None


def share_kept(looks: Sequence[Dream], obeys: Callable[[Dream], bool]) -> float | None:
    """Returns the requests for the opposite that the newest answers obey, as a share of those that the first ones
    obeyed, at most 1, plus the standard error of the difference: of sixteen answers some change at each update.

    Args:
        looks: answers to the same requests in several rollouts.

    Returns:
        None with fewer than two rollouts, or if too few of the first answers obeyed.
    """
    rollouts = sorted({one.rollout_id for one in looks})
    if len(rollouts) < 2:
        return None
    first, newest = (
        {one.item: obeys(one) for one in looks if one.rollout_id == at} for at in (rollouts[0], rollouts[-1])
    )
    both = first.keys() & newest.keys()
    obeyed = sum(first[item] for item in both)
    if not obeyed or obeyed < LEAST_OBEYED * len(both):
        return None
    changed = sum(first[item] != newest[item] for item in both)
    return min(1.0, (sum(newest[item] for item in both) + math.sqrt(changed)) / obeyed)


def anchor_factor(measured: Sequence[tuple[float | None, float | None]]) -> float:
    """Returns a factor of the anchors' weight, the multiplier of a constraint that is adapted after each update: more if
    requests for the opposite are lost, less if they are kept and the wish is not learned. At a fixed weight SmolLM2-135M
    stays at .5 to .9 of answers in the wished form, depending on the person (lab/findings/dreaming.md).

    Args:
        measured: (learned share, kept share) before each batch, the oldest first; the first precedes learning.
    """
    factor = 1.0
    for learned_share, kept in measured[1:]:
        if kept is not None and kept < KEPT:
            factor *= MORE
        elif learned_share is not None and learned_share < LEARNED:
            factor *= LESS
        factor = min(MOST_FACTOR, max(LEAST_FACTOR, factor))
    return factor


def weight(facts: Sequence[Dream]) -> float:
    """Returns the weight of a wish's dreams: 1, or less if the teacher that reads the wish loses facts that it knows
    without it. The policy must not learn an inability of the teacher.

    Args:
        facts: answers to questions with (`taught_ids` differs from `prompt_ids`) and without the wish; gain 1 if right.
    """
    plain = {one.item: bool(one.gain) for one in facts if one.taught_ids == one.prompt_ids}
    hinted = {one.item: bool(one.gain) for one in facts if one.taught_ids != one.prompt_ids}
    both = plain.keys() & hinted.keys()
    # Gained facts count too: a small model answers some questions right by chance.
    known, kept = sum(plain[item] for item in both), sum(hinted[item] for item in both)
    if known < KNOWN_FACTS or known - kept <= MAY_LOSE:
        return 1.0
    share = kept / known
    return share if share >= LEAST_WEIGHT else 0.0
