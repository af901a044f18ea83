"""Numbers about episodes of agents, and the rows that an evaluation leaves of each attempt."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slime.rollout.groups import FAILURE
from slime.rollout.metrics import SOLVED, ratio
from slime.trajectories import by_trajectory
from slime.types import Sample

EVALUATIONS = "evaluations.jsonl"
"""In the run folder: one row an attempt, `attempt_rows`."""
EPISODE = "episode"
AWAY = "environments_away"
INFRASTRUCTURE = ("environment", "engine")
"""Failures without information about the model."""
_NAMES = ("task_id", "task_name", "name", "id")


def episode_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """`rollout/episode/*` of a batch: means of turns, tool calls and parse errors, the share of episodes that called a
    tool, how many environments were away and replaced; of judged steps their number, how many of them no vote scored
    (`prm_failed`), and the mean score. Empty if no sample is an episode."""
    first = [part[0].metadata for part in by_trajectory(samples)]
    found = [metadata[EPISODE] for metadata in first if isinstance(metadata.get(EPISODE), Mapping)]
    if not found:
        return {}
    metrics = {
        f"rollout/episode/{name}": statistics.fmean(float(about.get(name, 0)) for about in found)
        for name in ("turns", "tool_calls", "parse_errors")
    }
    metrics["rollout/episode/tool_use"] = ratio(about.get("tool_calls", 0) > 0 for about in found)
    metrics[f"rollout/episode/{AWAY}"] = float(sum(metadata.get(AWAY, 0) for metadata in first))
    return metrics | _judged(samples)


def _judged(samples: Sequence[Sample]) -> dict[str, float]:
    steps = [step for sample in samples for step in (sample.metadata.get("prm") or {}).get("steps", [])]
    scores = [step["mean_score"] for step in steps if step["mean_score"] is not None]
    if not steps:
        return {}
    counts = {"prm_steps": float(len(steps)), "prm_failed": float(len(steps) - len(scores))}
    means = {"prm_score": statistics.fmean(scores)} if scores else {}
    return {f"rollout/episode/{name}": value for name, value in {**counts, **means}.items()}


def solves(sample: Sample, score: float) -> bool:
    """Whether an answer solves its task: by the reward's `acc` if it has one, else by its score."""
    said = sample.reward.get("acc") if isinstance(sample.reward, Mapping) else None
    return float(said if isinstance(said, int | float) else score) >= SOLVED


def attempt_rows(
    rollout_id: int, dataset: str, attempts: int, samples: Sequence[Sample], scores: Sequence[float]
) -> list[dict[str, Any]]:
    """What is kept of an evaluation, one row an attempt at a task.

    `success` is None if infrastructure failed: the model's own result is unknown then. `task_id` is what the
    prompt's metadata calls it, else its place in the file; `row` is that place.

    Args:
        samples, scores: [tasks * attempts], task after task.
    """
    pairs = enumerate(zip(samples, scores, strict=True))
    return [
        {"rollout_id": rollout_id, "dataset": dataset, **_row(sample, score, *divmod(number, attempts))}
        for number, (sample, score) in pairs
    ]


def _row(sample: Sample, score: float, row: int, attempt: int) -> dict[str, Any]:
    failure = sample.metadata.get(FAILURE, {}).get("reason")
    about = sample.metadata.get(EPISODE) or {}
    named = (sample.metadata[name] for name in _NAMES if sample.metadata.get(name) is not None)
    found: dict[str, Any] = {
        "task_id": str(next(named, row)),
        "row": row,
        "attempt_id": attempt,
        "status": sample.status.value,
        "success": None if failure in INFRASTRUCTURE else solves(sample, score),
        "reward": score,
        "steps": about.get("turns", 1),
        "tool_calls": about.get("tool_calls", 0),
        "parse_errors": about.get("parse_errors", 0),
        "response_len": sample.response_length,
        AWAY: sample.metadata.get(AWAY, 0),
    }
    return found if failure is None else {**found, "failure": failure}


def write_attempts(run_dir: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Adds rows to the run's file; after a line that a killed writer left incomplete, a new one is begun."""
    path = Path(run_dir) / EVALUATIONS
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(-1 if file.seek(0, os.SEEK_END) else 0, os.SEEK_END)
        torn = file.read(1) not in (b"", b"\n")
        file.write(("\n" * torn + "".join(json.dumps(row) + "\n" for row in rows)).encode())
