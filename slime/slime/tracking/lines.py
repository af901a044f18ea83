"""Formats one line per rollout for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slime.flags import Arguments

SHOWN = {
    "version": "weights/version",
    "batch": "rollout/batch_size",
    "reward": "rollout/reward_mean",
    "loss": "train/loss",
    "kl to the first model": "train/kl_loss",
    "kl of the update": "train/ppo_kl",
    "wait": "perf/wait_time",
    "train": "perf/train_time",
    "live": "perf/update_weights_time",
    "cost": "train/cost_usd",
    "teacher failed": "train/teacher_failed",
}
SHOWN_ABOVE_0 = ("train/ppo_kl", "train/teacher_failed")
"""Metrics that are shown only above 0; they are always 0 if a batch is one optimizer step."""
COUNTED = {
    "equal groups": "train/groups_all_equal",
    "failed": "rollout/error_cat/",
    "dropped": "rollout/drop/",
}
"""Counts that are shown above 0; a name that ends in / stands for several counts, one for each reason."""


def progress_line(step: int, metrics: Mapping[str, float]) -> str:
    """Formats `rollout 12 | version 13 | batch 4 | ...`, with times in seconds; missing measurements are omitted.

    Failures are listed at the end, such as `failed 4 reward | dropped 1 reward` (samples, groups).
    """
    parts = [f"rollout {step}"]
    for label, name in SHOWN.items():
        if name in metrics and not (name in SHOWN_ABOVE_0 and not metrics[name]):
            before, unit = "$" * name.endswith("_usd"), "s" * name.startswith("perf/")
            parts.append(f"{label} {before}{brief(metrics[name])}{unit}")
    for label, name in COUNTED.items():
        for full in sorted(metrics):
            if metrics[full] and (full == name or (name.endswith("/") and full.startswith(name))):
                reason = full.removeprefix(name)
                parts.append(f"{label} {brief(metrics[full])}{' ' * bool(reason)}{reason}")
    return " | ".join(parts)


def evaluation_line(step: int, metrics: Mapping[str, float]) -> str:
    """Formats `evaluation 12 | arithmetic 0.93 | ...`: the mean score of each data set."""
    scores = {
        name.removeprefix("eval/"): value
        for name, value in metrics.items()
        if name.startswith("eval/") and name.count("/") == 1
    }
    return " | ".join([f"evaluation {step}", *(f"{name} {brief(value)}" for name, value in scores.items())])


def beginning(args: Arguments, rollout_id: int) -> str:
    """Returns the paths and addresses of a run, at its start (`rollout_id` -1) or when it resumes after a rollout."""
    begun = "training begins" if rollout_id < 0 else f"training goes on after rollout {rollout_id}"
    curves = f"; curves: tensorboard --logdir {args.tensorboard_dir}" if args.use_tensorboard else ""
    return f"{begun}; run folder {args.run_dir}{curves}; Ctrl-C stops all of it, the same command goes on"


def brief(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return str(int(value)) if value == int(value) and abs(value) < 1e9 else f"{value:.3g}"
