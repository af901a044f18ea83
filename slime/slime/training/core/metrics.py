"""Numbers of a whole rollout that every rank knows without asking the others."""

from __future__ import annotations

from collections.abc import Sequence

from slime.training.schedule import Schedule
from slime.types import Sample


def mean_of_steps(steps: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]} if steps else {}


def rollout_metrics(samples: Sequence[Sample], schedule: Schedule) -> dict[str, float]:
    trained = sorted(i for step in schedule.steps for i in step.samples)
    return {
        "num_steps": float(len(schedule.steps)),
        "num_samples": float(len(trained)),
        "num_tokens": float(sum(step.num_tokens for step in schedule.steps)),
        "num_dropped": float(len(schedule.dropped)),
        "response_length": sum(samples[i].response_length for i in trained) / max(len(trained), 1),
    }
