"""Advice for users whose clients request greedy answers, which are not samples of the policy."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw.types import GREEDY

_FEWEST = 5
"""Minimum number of turns for advice."""


def advice(reasons: Sequence[str | None]) -> str | None:
    """Returns the remedy if most of the newest main turns were greedy; None if they were not. `reasons`: field
    `unsampled` of each turn."""
    greedy = reasons.count(GREEDY)
    if len(reasons) < _FEWEST or 2 * greedy <= len(reasons):
        return None
    return (
        f"{greedy} of the last {len(reasons)} main turns had temperature 0: their hints are trained, their scores are "
        "not; set a temperature in the client, or start the server with --min-temperature 0.3"
    )
