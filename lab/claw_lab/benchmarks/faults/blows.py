"""Processes of a loop killed within a moment, and how long until people got answers again."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Blow:
    """Processes killed within a moment. `answers_s`: until a whole answer that was asked for afterwards had come."""

    roles: list[str]
    answers_s: float
    health_s: float
    refused: int


def blows_so_far(folder: Path) -> list[Blow]:
    path = folder / "blows.jsonl"
    return [Blow(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def summary(blows: list[Blow]) -> dict[str, object]:
    """Over all pieces: kills by role, and seconds until answers came again."""
    kills = Counter(role for one in blows for role in one.roles)
    answers, health = [one.answers_s for one in blows], [one.health_s for one in blows]
    return {
        "kills": kills.total(),
        "by_role": dict(kills),
        "blows": len(blows),
        "answers_again_s": [round(statistics.median(answers), 2), max(answers)],
        "health_again_s": [round(statistics.median(health), 3), max(health)],
        "refused": sum(one.refused for one in blows),
        "kinds": by_kind(blows),
    }


def by_kind(blows: list[Blow]) -> dict[str, dict[str, float]]:
    """Seconds and refusals of the blows at a gateway or an engine alone, at one of them with others, and at others."""
    kinds: dict[str, list[Blow]] = {}
    for one in blows:
        roles = set(one.roles)
        front = roles & {"gateway", "engine"}
        alone = f"{min(roles, default='nobody')} alone"
        kind = "neither gateway nor engine" if not front else alone
        kinds.setdefault("gateway or engine with others" if front and len(roles) > 1 else kind, []).append(
            one
        )
    return {
        kind: {
            "median_s": statistics.median(one.answers_s for one in own),
            "longest_s": max(one.answers_s for one in own),
            "refused": sum(one.refused for one in own),
        }
        for kind, own in sorted(kinds.items())
    }
