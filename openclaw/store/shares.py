"""Limits the fraction of training samples from one person if several people teach. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

WINDOW_SECONDS = 3600.0
"""Seconds. Samples leased or trained within this time count towards a person's share."""

Person = str | None
"""Name of a person. None stands for all unnamed people together."""


def bounded(
    ready: Sequence[tuple[int, Person]], learned: Mapping[Person, int], batch_size: int, share: float
) -> list[int]:
    """Returns the ids of the samples of a batch, oldest first, with a limited number from each person.

    A person's samples in the window and in this batch are at most `share` of all samples in both. Samples over the
    limit stay ready. There is no limit unless at least two people have as many samples as a batch.

    Args:
        ready: id and person of each ready sample, oldest first.
        learned: by person, number of samples leased or trained within `WINDOW_SECONDS`.
        batch_size: samples in a batch.
        share: fraction from 0 to 1; 1 for no limit.
    """
    if share >= 1 or not _several_people_teach(ready, learned, batch_size):
        return [sample for sample, _ in ready[:batch_size]]
    taken = Counter(learned)
    limit = share * (sum(taken.values()) + batch_size)
    batch: list[int] = []
    for sample, person in ready:
        if len(batch) < batch_size and taken[person] + 1 <= limit:
            taken[person] += 1
            batch.append(sample)
    return batch


def _several_people_teach(
    ready: Sequence[tuple[int, Person]], learned: Mapping[Person, int], batch_size: int
) -> bool:
    """Returns whether at least two people each have `batch_size` samples or more."""
    counts = Counter(learned)
    counts.update(person for _, person in ready)
    return sum(count >= batch_size for count in counts.values()) >= 2
