"""Confidence intervals and significance tests of counts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

Z95 = 1.959964


def wilson(hits: int, count: int) -> tuple[float, float] | None:
    """Returns the 95 % interval of a share (Wilson 1927); None if `count` is 0."""
    if not count:
        return None
    share, z2 = hits / count, Z95 * Z95
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def mcnemar(before: Sequence[bool], now: Sequence[bool]) -> float:
    """Returns the two-sided p of the exact McNemar test; 1 if no case changed.

    It is the probability of changes at least as uneven if improvements and regressions are equally likely.
    """
    pairs = list(zip(before, now, strict=True))
    better, worse = sum(b and not a for a, b in pairs), sum(a and not b for a, b in pairs)
    changed = better + worse
    tail = sum(math.comb(changed, k) for k in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / (1 << changed))


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns the 95 % interval of a mean from its standard error; None for fewer than two values."""
    if len(values) < 2:
        return None
    half = Z95 * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half
