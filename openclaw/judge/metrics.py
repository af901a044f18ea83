"""Metrics of a judge worker, logged at intervals, with alarms for uninformative scores and hints."""

from __future__ import annotations

import bisect
import logging
from collections import Counter, deque
from typing import Any

import orjson

from openclaw.judge.hints import FoundHints

log = logging.getLogger("openclaw.judge")

LATENCY_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Seconds; a latency counts in the first bucket whose bound it does not exceed."""

ADVICE = (
    "check that next states carry feedback (a person's or a tool's reaction to the answer), check that the "
    "prompt template is what the judge model expects (--judge-prompt-dir), or raise --majority-vote-n"
)


HINT_ADVICE = "check the hint prompt (--judge-prompt-dir, hint.md) and whether next states carry corrections"


class NeutralAlarm:
    """Detects that too many of the last `window` scores are 0: such turns are not trained on.

    The alarm is raised once, and again after `window` more judgements if it still applies. `limit`: the share above
    which it is raised.
    """

    def __init__(self, limit: float, window: int) -> None:
        self._limit = limit
        self._last: deque[bool] = deque(maxlen=window)
        self._quiet = 0

    def add(self, score: float) -> float | None:
        """Counts a score; returns the share of neutral scores if the alarm is raised now."""
        self._last.append(score == 0)
        self._quiet -= 1
        share = sum(self._last) / len(self._last)
        if len(self._last) < (self._last.maxlen or 0) or share <= self._limit or self._quiet > 0:
            return None
        self._quiet = len(self._last)
        return share


class HintHabit:
    """Detects that all of the last `window` turns had a hint, or none: such a judge ignores the content.

    It is reported once, and again after `window` more turns if it still applies.
    """

    def __init__(self, window: int) -> None:
        self._last: deque[bool] = deque(maxlen=window)
        self._quiet = 0

    def add(self, has_hint: bool) -> str | None:
        """Counts a turn; returns the message if it must be reported now."""
        self._last.append(has_hint)
        self._quiet -= 1
        full = len(self._last) == self._last.maxlen
        if not full or self._quiet > 0 or len(set(self._last)) > 1:
            return None
        self._quiet = len(self._last)
        return (
            f"each of the last {len(self._last)} turns has a hint"
            if has_hint
            else (f"none of the last {len(self._last)} turns has a hint")
        )


class JudgeMetrics:
    """Counts since the start of one worker."""

    def __init__(self, judge: str, neutral_limit: float = 1.0, neutral_window: int = 1) -> None:
        self._judge = judge
        self._alarm = NeutralAlarm(neutral_limit, neutral_window)
        self._outcomes: Counter[str] = Counter()
        self._votes: Counter[str] = Counter()
        self._hints: Counter[str] = Counter()
        self._hint_habit = HintHabit(neutral_window)
        self._latency = [0] * (len(LATENCY_BOUNDS) + 1)
        self._latency_sum = 0.0
        self.requests = 0
        """Requests to judge models, including retries."""
        self.retries = 0
        self.cache_hits = 0
        self.unplaced_hints = 0
        """Hints that did not fit into their turn's prompt."""
        self.teacher_failures: Counter[str] = Counter()
        """Turns whose teacher failed, by kind of error."""

    def judged(self, score: float, votes: list[int | None], latency: float) -> None:
        """Counts a scored turn. `latency` in seconds."""
        self._outcomes[_name(score)] += 1
        self._votes.update(map(_name, votes))
        self._latency[bisect.bisect_left(LATENCY_BOUNDS, latency)] += 1
        self._latency_sum += latency
        share = self._alarm.add(score)
        if share is not None:
            log.warning("judge alarm: %.0f%% of the last scores are neutral; %s", 100 * share, ADVICE)

    def hinted(self, hints: FoundHints) -> None:
        """Counts the hints of a turn."""
        self._hints["turns_with" if hints.hints else "turns_without"] += 1
        self._hints.update({f"votes_{name}": count for name, count in hints.counts.items()})
        habit = self._hint_habit.add(bool(hints.hints))
        if habit:
            log.warning("judge alarm: %s; %s", habit, HINT_ADVICE)

    def failed(self, error: Exception) -> None:
        """Counts a failed attempt."""
        self._outcomes[f"failed_{type(error).__name__}"] += 1

    def snapshot(self) -> dict[str, Any]:
        """Returns all counts; `latency_seconds` has the cumulative number of judgements up to each bound, and the
        sum."""
        bounds = [*(f"{bound:g}" for bound in LATENCY_BOUNDS), "inf"]
        buckets = {bound: count for bound, count in zip(bounds, self._latency, strict=True) if count}
        return {
            "judge": self._judge,
            "outcomes": dict(self._outcomes),
            "votes": dict(self._votes),
            "hints": dict(self._hints) | ({"unplaced": self.unplaced_hints} if self.unplaced_hints else {}),
            "teacher_failures": dict(self.teacher_failures),
            "latency_seconds": {"buckets": buckets, "sum": round(self._latency_sum, 3)},
            "requests": self.requests,
            "retries": self.retries,
            "cache_hits": self.cache_hits,
        }

    def write(self) -> None:
        """Writes one log line: `judge metrics` and a JSON object."""
        log.info("judge metrics %s", orjson.dumps(self.snapshot()).decode())


def _name(score: float | None) -> str:
    if score is None:
        return "invalid"
    return "positive" if score > 0 else "negative" if score < 0 else "neutral"
