"""How far one update may move the weights, learned from the updates before it."""

from __future__ import annotations

from collections.abc import Sequence

FACTOR = 4.0
"""How many times the largest of the accepted changes the next one may be."""
ENOUGH = 5
"""Accepted changes from which the bound is learned."""
WINDOW = 32
"""Newest accepted changes that count."""


def largest_change(accepted: Sequence[float], most: float) -> float:
    """The bound of the next update's relative change: `most`, or less where the accepted ones were all small.

    Updates that changed nothing say nothing about the scale and are left out.
    """
    moved = [change for change in accepted if change > 0][-WINDOW:]
    return min(most, FACTOR * max(moved)) if len(moved) >= ENOUGH else most
