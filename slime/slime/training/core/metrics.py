"""Numbers of a whole rollout that every rank knows without asking the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def method_metrics(args: Any) -> dict[str, float]:
    """The settings of a distillation, as numbers beside its metrics."""
    modes, selections = ("student", "overlap", "teacher"), ("shortest", "token_optimal", "sequence_optimal")
    found: dict[str, float] = {}
    if args.loss_type in ("opd_topk", "topk_select"):
        found["distill_subset_mode_id"] = float(modes.index(args.distill_subset_mode))
        found["hint_selection_mode_id"] = float(selections.index(args.hint_selection))
    weights = {
        "combine": (args.combine_w_rl, args.combine_w_opd),
        "topk_select": (args.topk_w_rl, args.topk_w_opd),
    }
    if args.loss_type in weights:
        found["w_rl"], found["w_opd"] = weights[args.loss_type]
    return found
