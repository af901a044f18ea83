"""Means over seeds with 90 % intervals, and the lines that a benchmark prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from claw_lab.offline.trial import LATE, TARGET

_T95 = (
    *(
        6.314,
        2.920,
        2.353,
        2.132,
        2.015,
        1.943,
        1.895,
        1.860,
        1.833,
        1.812,
        1.796,
        1.782,
        1.771,
        1.761,
        1.753,
    ),
    *(
        1.746,
        1.740,
        1.734,
        1.729,
        1.725,
        1.721,
        1.717,
        1.714,
        1.711,
        1.708,
        1.706,
        1.703,
        1.701,
        1.699,
        1.697,
    ),
)
"""Student's t at 0.95 for 1, 2, ... degrees of freedom."""
COLLAPSED = 0.25
"""Share of bare or empty replies after 40 sessions from which a seed counts as collapsed."""
_WISHES = ("list_in_question", "list_in_system", "list_in_complaint", "other_wishes", "forms", "spread")
_LATE = (
    *(
        "preference",
        "accuracy_greedy",
        "accuracy_sampled",
        "steps_kept",
        "bare",
        "listed",
        "entropy",
        "kl_to_start",
    ),
    *_WISHES,
)


def mean_interval(values: Sequence[float]) -> dict[str, float]:
    """Returns the mean and the half width of its 90 % interval (Student's t); one value has no interval."""
    n = len(values)
    mean = sum(values) / n
    numbers = {"mean": round(mean, 4)}
    if n > 1:
        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
        t = _T95[n - 2] if n - 2 < len(_T95) else 1.645
        numbers["plus_minus"] = round(t * deviation / math.sqrt(n), 4)
    return numbers


def summary(results: Sequence[dict[str, Any]], most: int) -> dict[str, Any]:
    """Returns one method's line. A trial that did not reach the target counts as `most` sessions and is marked, since
    the mean is then too low."""
    numbers: dict[str, Any] = {"seeds": len(results), "target": TARGET}
    for name in ("sessions_to_preference", "sessions_to_three"):
        values = [result[name] for result in results]
        numbers[name] = mean_interval([most if value is None else float(value) for value in values])
        numbers[name]["not_reached"] = values.count(None)
    remembering = [result for result in results if result.get("with_memory")]
    if remembering:
        numbers["pleased_after_first_round"] = mean_interval([one["pleased"] for one in remembering])
        numbers["with_memory"] = mean_interval([one["with_memory"][-1][1] for one in remembering])
        wishes = [wish for one in remembering for wish in one["remembered"]]
        numbers["wishes"] = {"all": len(wishes), "held": sum(not wish["in_prompt"] for wish in wishes)}
    numbers["preference_before"] = mean_interval([result["preference_before"] for result in results])
    for name in ("listed_before", "trained"):
        if all(name in result for result in results):
            numbers[name] = mean_interval([float(result[name]) for result in results])
    late = [result["late"] for result in results]
    if all("wishes_before" in result for result in results):
        asked = [result["wishes_before"] for result in results]
        numbers["wishes_before"] = _means(asked)
    if all("blind_before" in result for result in results):
        numbers["blind"] = {
            "before": _means([result["blind_before"] for result in results]),
            "after": _means([one["blind"] for one in late]),
            "kept": sum(one["blind_kept"] for one in late),
        }
    after: dict[str, Any] = {
        name: mean_interval([one[name] for one in late]) for name in _LATE if name in late[0]
    }
    after["worst_accuracy_greedy"] = min(one["accuracy_greedy"] for one in late)
    after["worst_steps_kept"] = min(one["steps_kept"] for one in late)
    after["wishes_kept"] = sum(one.get("wishes_kept", False) for one in late)
    after["collapsed"] = sum(one["bare"] >= COLLAPSED for one in late)
    after["updates"] = mean_interval([float(one["updates"]) for one in late])
    numbers[f"after_{min(LATE, most)}_sessions"] = after
    numbers["seconds_a_seed"] = mean_interval([result["seconds"] for result in results])["mean"]
    return numbers


def _means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Returns the means of rows of explicit requests."""
    return {name: mean_interval([row[name] for row in rows])["mean"] for name in _WISHES}


def mean_curve(results: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """Returns the mean preference by number of sessions, as far as all seeds go."""
    curves = [dict(map(tuple, result["curve"])) for result in results]
    shared = set.intersection(*(set(curve) for curve in curves))
    return [(count, sum(curve[count] for curve in curves) / len(curves)) for count in sorted(shared)]
