"""Converts hint votes to the hints of a turn. One vote is enough: there is no quorum, as in OpenClaw-RL.

A judge may always or never return a hint, write the markers twice (the last block counts), or write an essay: each
case is counted, and replies without a hint are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from openclaw.judge.backends.votes import HINT_START
from openclaw.types import Vote

SHORTEST_HINT = 10
"""Bytes of UTF-8 (one a Latin letter, three a Chinese character); a hint must be longer."""


@dataclass(frozen=True)
class FoundHints:
    """`hints`: accepted ones without duplicates, shortest first. `counts`: votes by kind."""

    hints: list[str]
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def score(self) -> float:
        """Returns 1.0 with a hint, -1.0 without."""
        return 1.0 if self.hints else -1.0


def find_hints(votes: Sequence[Vote], longest: int) -> FoundHints:
    """Returns the hints of votes with score 1 that are longer than SHORTEST_HINT and have at most `longest`
    characters."""
    counts = Counter(_kind(vote, longest) for vote in votes)
    counts["repeated_markers"] = sum(vote.text.count(HINT_START) > 1 for vote in votes)
    accepted = [vote.hint for vote in votes if vote.hint and _kind(vote, longest) == "accepted"]
    different = list(dict.fromkeys(accepted))
    counts["duplicate"] = len(accepted) - len(different)
    return FoundHints(sorted(different, key=len), +counts)


def _kind(vote: Vote, longest: int) -> str:
    if vote.score not in (1, -1):
        return "invalid"
    if vote.score == -1:
        return "none"
    if not vote.hint:
        return "missing"
    if len(vote.hint.encode()) <= SHORTEST_HINT:
        return "too_short"
    return "too_long" if len(vote.hint) > longest else "accepted"
