"""Limits one person's share of the training samples if several people teach: pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

WINDOW_SECONDS = 3600.0
"""Length of the window in seconds: samples leased or trained in it count."""

Person = str | None
"""None: all people without a name, as one."""


def bounded(
    ready: Sequence[tuple[int, Person]], learned: Mapping[Person, int], batch_size: int, share: float
) -> list[int]:
    """Returns the samples of a batch, oldest first, so that one person contributes at most `share` of the window's
    samples plus one batch. The other samples wait.

    There is no bound unless a second person has as many samples as a batch.

    Args:
        ready: id and person of each ready sample, oldest first.
        learned: by person, number of samples leased or trained in the window.
        batch_size: samples in a batch.
        share: 0 to 1; 1: no bound.
    """
    if share >= 1 or not _is_company(ready, learned, batch_size):
        return [sample for sample, _ in ready[:batch_size]]
    taken = Counter(learned)
    most = share * (sum(taken.values()) + batch_size)
    chosen: list[int] = []
    for sample, person in ready:
        if len(chosen) < batch_size and taken[person] + 1 <= most:
            taken[person] += 1
            chosen.append(sample)
    return chosen


def _is_company(ready: Sequence[tuple[int, Person]], learned: Mapping[Person, int], batch_size: int) -> bool:
    """Returns whether at least two people have as many samples as a batch."""
    counts = Counter(learned)
    counts.update(person for _, person in ready)
    return sum(count >= batch_size for count in counts.values()) >= 2
