"""Tests of what a candidate lost against what a reference version could do, question by question. Pure.

The reference is the first version. A later one takes its place when it is better by the same test, not when it is only
luckier: with the luckiest of many versions as the bar, more and more updates that lost nothing would be rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb

Outcomes = Mapping[str, bool]
"""Whether each question was answered right, or each wish obeyed, by what names it for good."""

SPLIT = {"wish": 0.5, "question": 0.25, "fact": 0.25}
"""Shares of the false alarms of one update (Bonferroni): together they are at most --gate-false-alarms."""
CHANCE = 0.1
"""Share of the facts that a version knew which it may answer wrong by chance: short greedy answers turn over by small
changes. More than that many is a loss."""


def lost_and_gained(reference: Outcomes, now: Outcomes) -> tuple[int, int]:
    """Returns how many that were right are wrong, and the other way round, of those that both were asked."""
    both = reference.keys() & now.keys()
    lost = sum(reference[key] and not now[key] for key in both)
    gained = sum(now[key] and not reference[key] for key in both)
    return lost, gained


def chance_of(lost: int, gained: int) -> float:
    """Exact one-sided McNemar test: the probability of so many losses among as many changes, if a change is as likely a
    gain (McNemar 1947; the binomial form of Mosteller 1952)."""
    return at_least(lost, lost + gained, 0.5)


def at_least(hits: int, trials: int, rate: float) -> float:
    """Probability of `hits` or more in so many independent trials."""
    return sum(
        comb(trials, count) * rate**count * (1 - rate) ** (trials - count)
        for count in range(hits, trials + 1)
    )


def is_worse(reference: Outcomes, now: Outcomes, alarms: float) -> bool:
    """Returns whether more was lost than gained, at a false-alarm rate of at most `alarms`."""
    return chance_of(*lost_and_gained(reference, now)) <= alarms


def is_better(reference: Outcomes, now: Outcomes, alarms: float) -> bool:
    """Returns whether `now` may take the place of the reference."""
    lost, gained = lost_and_gained(reference, now)
    return chance_of(gained, lost) <= alarms


def fewest_seen(alarms: float, gained: int = 0) -> int:
    """Losses from which an alarm is given, next to so many gains."""
    lost = gained
    while chance_of(lost, gained) > alarms:
        lost += 1
    return lost


def power(count: int, loss: float, alarms: float) -> float:
    """Probability of an alarm when each of `count` questions that were right is lost with probability `loss`, and none
    is gained."""
    return at_least(fewest_seen(alarms), count, loss)


def share(outcomes: Outcomes, keys: Sequence[str] | None = None) -> float:
    """Share that is right; 0 of none."""
    chosen = list(outcomes) if keys is None else [key for key in keys if key in outcomes]
    return sum(outcomes[key] for key in chosen) / len(chosen) if chosen else 0.0
