"""How much of what is learned one person gives, where several teach: pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

WINDOW_SECONDS = 3600.0
"""What was leased or trained in so many seconds counts."""

Person = str | None
"""None: everybody without a name, as one."""


def bounded(
    ready: Sequence[tuple[int, Person]], learned: Mapping[Person, int], batch_size: int, share: float
) -> list[int]:
    """Samples for a batch, oldest first, so that one person's part of all that is learned in the window stays at most
    `share` of it and of one batch more. What is left over waits.

    Nobody is bounded who teaches alone: a person with fewer samples than a batch is no company.

    Args:
        ready: id and person of each sample that could go, oldest first.
        learned: by person, how many were leased or trained in the window.
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
    """Whether at least two people teach."""
    counts = Counter(learned)
    counts.update(person for _, person in ready)
    return sum(count >= batch_size for count in counts.values()) >= 2
