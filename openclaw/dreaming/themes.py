"""Determines which aspect of an answer a wish is about, in the themes of the shipped wishes.

Themes found by `openclaw.common.wish_themes` come first. A wish also has the theme of the shipped wishes with common
words, weighted by the rarity of the words. A wish with neither has no known theme.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from openclaw.common.wish_themes import wish_themes
from openclaw.dreaming.texts import ShippedWish, wishes

KNOWN = {"layout": ("layout", "steps"), "length": ("length",), "tone": ("tone",)}
"""Themes of the shipped wishes by the theme that the phrases name."""
NEAREST_AGREES, NEAREST_ALONE = 2.0, 0.9
"""Weight of the theme of the nearest shipped wishes, if the phrases name it too and if not; a theme named by the
phrases has weight 1."""
_NEAREST = 5
"""Number of shipped wishes that vote."""
_LEAST = 4.0
"""Summed weight of common words below which two wishes count as unrelated."""
_STEM = 5
_WORD = re.compile(r"[^\W\d_]{2,}")


@functools.lru_cache(maxsize=256)
def themes_of(wish: str) -> Mapping[str, float]:
    """Returns the weights of a wish's themes, which sum to 1; empty if it has no words in common with a shipped
    wish."""
    weights: dict[str, float] = {}
    for theme in wish_themes(wish):
        for own in KNOWN[theme]:
            weights[own] = weights.get(own, 0.0) + 1 / len(KNOWN[theme])
    if (nearest := _nearest(wish)) is not None:
        weights[nearest] = weights.get(nearest, 0.0) + (
            NEAREST_AGREES if nearest in weights else NEAREST_ALONE
        )
    return {theme: weight / sum(weights.values()) for theme, weight in sorted(weights.items())}


def alike(one: str, other: str) -> bool:
    """Returns whether two wishes are about the same aspect of an answer."""
    themes, theirs = themes_of(one), themes_of(other)
    return bool(themes.keys() & theirs.keys()) or not (themes or theirs)


def same_pole(one: str, other: str) -> bool:
    """Returns whether two wishes seem to ask for the same within their themes."""
    pole = pole_of(one)
    return pole is not None and pole == pole_of(other)


def _nearest(wish: str) -> str | None:
    """Returns the theme with the most votes of the nearest shipped wishes; None if no shipped wish is near."""
    return _voted([(score, shipped.theme) for score, shipped in _scored(wish) if score >= _LEAST])


@functools.lru_cache(maxsize=256)
def pole_of(wish: str) -> str | None:
    """Returns the theme and pole ("length short") with the most votes of the nearest shipped wishes of the same
    themes; None if none is near. Half of the complaints whose pole `imperatives.asked_pole` does not know get a wrong
    one."""
    themes = themes_of(wish)
    own = [(score, shipped) for score, shipped in _scored(wish) if score and shipped.theme in themes]
    return _voted(
        [(_per_length(score, shipped), f"{shipped.theme} {shipped.pole}") for score, shipped in own]
    )


def _scored(wish: str) -> list[tuple[float, ShippedWish]]:
    words, rarity = _stems(wish), _rarity()
    return [(sum(rarity[word] for word in words & own), shipped) for own, shipped in _shipped()]


def _per_length(score: float, shipped: ShippedWish) -> float:
    """Returns the score divided by the shipped wish's length: the same common words mean more in a short wish."""
    rarity = _rarity()
    return score / math.sqrt(1 + sum(rarity[word] for word in _stems(shipped.text)))


def _voted(ballots: Sequence[tuple[float, str]]) -> str | None:
    """The name with the largest sum among the highest ballots; None without any. A name of many shipped wishes is
    near more often by chance, so each of its ballots has less weight."""
    votes: dict[str, float] = {}
    for score, name in sorted(ballots, reverse=True)[:_NEAREST]:
        votes[name] = votes.get(name, 0.0) + score / math.sqrt(_counts()[name])
    return max(votes, key=lambda name: votes[name]) if votes else None


@functools.cache
def _counts() -> Counter[str]:
    """Returns the number of shipped wishes by theme, and by theme and pole."""
    return Counter(name for one in wishes() for name in (one.theme, f"{one.theme} {one.pole}"))


@functools.cache
def _shipped() -> list[tuple[frozenset[str], ShippedWish]]:
    return [(_stems(wish.text), wish) for wish in wishes()]


@functools.cache
def _rarity() -> dict[str, float]:
    counts = Counter(word for words, _shipped_wish in _shipped() for word in words)
    return {word: math.log(len(_shipped()) / count) for word, count in counts.items()}


def _stems(text: str) -> frozenset[str]:
    return frozenset(word[:_STEM] for word in _WORD.findall(text.lower()))
