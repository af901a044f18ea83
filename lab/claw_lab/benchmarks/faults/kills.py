"""Records batches of processes that were killed together, and the seconds until answers came again."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KillBatch:
    """Processes killed together. `answers_s`: seconds until the first complete answer to a request sent after the
    kill; `health_s`: seconds until `/healthz` answered; `refused`: refused connections."""

    roles: list[str]
    answers_s: float
    health_s: float
    refused: int


def kill_batches(folder: Path) -> list[KillBatch]:
    """Returns the batches recorded in a folder so far."""
    path = folder / "kills.jsonl"
    return [KillBatch(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def summary(batches: list[KillBatch]) -> dict[str, object]:
    """Returns the kills by role, and the seconds until answers came again, over all batches."""
    kills = Counter(role for one in batches for role in one.roles)
    answers, health = [one.answers_s for one in batches], [one.health_s for one in batches]
    return {
        "kills": kills.total(),
        "by_role": dict(kills),
        "batches": len(batches),
        "answers_again_s": [round(statistics.median(answers), 2), max(answers)],
        "health_again_s": [round(statistics.median(health), 3), max(health)],
        "refused": sum(one.refused for one in batches),
        "kinds": by_kind(batches),
    }


def by_kind(batches: list[KillBatch]) -> dict[str, dict[str, float]]:
    """Returns seconds and refused connections of three kinds of batches: a gateway or an engine alone, one of them
    with other processes, and other processes only."""
    kinds: dict[str, list[KillBatch]] = {}
    for one in batches:
        roles = set(one.roles)
        front = roles & {"gateway", "engine"}
        alone = f"{min(roles, default='none')} alone"
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
