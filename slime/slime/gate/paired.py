"""Tests whether a candidate lost abilities of a reference version, question by question. Pure functions.

The first reference is the initial version. A later one replaces it if it is better by the same test, not if it only
has a higher score: with the luckiest of many versions as reference, more and more harmless updates would be rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, sqrt

Outcomes = Mapping[str, bool]
"""Whether each question was answered correctly, or each request obeyed, by its permanent key."""

SPLIT = {"wish": 0.5, "question": 0.25, "fact": 0.25}
"""Shares of one update's false-alarm rate (Bonferroni); together at most --gate-false-alarms."""
CHANCE = 0.1
"""Share of the known facts that may be lost by chance: small changes flip short greedy answers."""


def lost_and_gained(reference: Outcomes, now: Outcomes) -> tuple[int, int]:
    """Returns the numbers of lost and gained outcomes among the questions in both."""
    both = reference.keys() & now.keys()
    lost = sum(reference[key] and not now[key] for key in both)
    gained = sum(now[key] and not reference[key] for key in both)
    return lost, gained


def flips(reference: Outcomes, now: Outcomes) -> float:
    """Returns the standard error of the difference of both shares, if losses and gains are equally likely.

    Rounding alone flips short greedy answers, so a difference of one or two requests shows nothing.
    """
    both = reference.keys() & now.keys()
    return sqrt(sum(lost_and_gained(reference, now))) / len(both) if both else 0.0


def chance_of(lost: int, gained: int) -> float:
    """Returns the p-value of the exact one-sided McNemar test.

    It is the probability of at least so many losses among the changes, if gains are equally likely (McNemar
    1947; the binomial form of Mosteller 1952).
    """
    return at_least(lost, lost + gained, 0.5)


def at_least(hits: int, trials: int, rate: float) -> float:
    """Returns the probability of `hits` or more in `trials` independent trials."""
    return sum(
        comb(trials, count) * rate**count * (1 - rate) ** (trials - count)
        for count in range(hits, trials + 1)
    )


def is_worse(reference: Outcomes, now: Outcomes, alarms: float) -> bool:
    """Returns whether significantly more was lost than gained, at a false-alarm rate of at most `alarms`."""
    return chance_of(*lost_and_gained(reference, now)) <= alarms


def is_better(reference: Outcomes, now: Outcomes, alarms: float) -> bool:
    """Returns whether `now` is significantly better, so that it may replace the reference."""
    lost, gained = lost_and_gained(reference, now)
    return chance_of(gained, lost) <= alarms


def fewest_seen(alarms: float, gained: int = 0) -> int:
    """Returns the minimum number of losses that give an alarm, for a number of gains."""
    lost = gained
    while chance_of(lost, gained) > alarms:
        lost += 1
    return lost


def power(count: int, loss: float, alarms: float) -> float:
    """Returns the probability of an alarm if each of `count` correct answers is lost with probability `loss`.

    No answer is gained.
    """
    return at_least(fewest_seen(alarms), count, loss)


def share(outcomes: Outcomes, keys: Sequence[str] | None = None) -> float:
    """Returns the share of positive outcomes; 0 if empty."""
    chosen = list(outcomes) if keys is None else [key for key in keys if key in outcomes]
    return sum(outcomes[key] for key in chosen) / len(chosen) if chosen else 0.0
