"""Chooses one learning rate for all methods, by the harm that it does and not by the winning method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claw_lab.offline.statistics import COLLAPSED

LOST_ACCURACY, LEAST_STEPS = 0.01, 0.95
RULE = (
    "Of the rates given, the highest at which no trial of any method loses more than 1 point of greedy accuracy, keeps "
    "the steps in fewer than 95 % of its replies on average over seeds, or collapses, 40 sessions on; without such a "
    "rate, the lowest."
)


def is_sound(results: Sequence[dict[str, Any]]) -> bool:
    """Returns whether a rate did no harm in all trials at that rate; the accuracy starts at 1."""
    by_method: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        by_method.setdefault(result["job"]["method"], []).append(result["late"])
    for late in by_method.values():
        steps = sum(one["steps_kept"] for one in late) / len(late)
        worst = min(one["accuracy_greedy"] for one in late)
        if worst < 1 - LOST_ACCURACY or steps < LEAST_STEPS or any(one["bare"] >= COLLAPSED for one in late):
            return False
    return True


def choice(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the rule, the results of each rate, and the chosen rate."""
    by_rate: dict[float, list[dict[str, Any]]] = {}
    for result in results:
        by_rate.setdefault(result["job"]["lr"], []).append(result)
    sound = {rate: is_sound(group) for rate, group in sorted(by_rate.items())}
    passed = [rate for rate, is_good in sound.items() if is_good]
    return {
        "rule": RULE,
        "sound": {f"{rate:g}": ok for rate, ok in sound.items()},
        "lr": max(passed or [min(sound)]),
    }
