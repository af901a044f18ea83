"""From votes to a score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from openclaw.types import Vote


def majority_score(votes: Sequence[Vote], threshold: float = 0.0) -> float:
    """The score most valid votes agree on: 1.0, -1.0 or 0.0.

    A vote without a score is not valid. 0.0 for a tie, for no valid vote, and when the majority's share of
    the valid votes is below `threshold` (0 to 1).
    """
    counts = Counter(vote.score for vote in votes if vote.score is not None)
    if not counts:
        return 0.0
    (score, most), *others = counts.most_common(2)
    if others and others[0][1] == most:
        return 0.0
    return float(score) if most / counts.total() >= threshold else 0.0
