"""What a run says of itself: one line a training step, and TensorBoard curves. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tensorboard.summary import Writer


class Tracker:
    """Writes scalars to a TensorBoard folder (None: nowhere); a restarted driver adds a file of its own."""

    def __init__(self, tensorboard_dir: str | None) -> None:
        self.writer = None if tensorboard_dir is None else Writer(tensorboard_dir)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adds one point a metric at `step` (the rollout id) and shows the step's line on the terminal."""
        if self.writer is not None:
            for name, value in metrics.items():
                self.writer.add_scalar(name, float(value), step)
            self.writer.flush()
        print(progress_line(step, metrics), flush=True)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


SHOWN = {
    "version": "weights/version",
    "batch": "rollout/batch_size",
    "reward": "rollout/reward_mean",
    "loss": "train/loss",
    "kl": "train/ppo_kl",
    "wait": "perf/wait_time",
    "train": "perf/train_time",
    "live": "perf/update_weights_time",
}


def progress_line(step: int, metrics: Mapping[str, float]) -> str:
    """`rollout 12 | version 13 | batch 4 | ...`; times in seconds; what was not measured is left out."""
    parts = [f"rollout {step}"]
    for label, name in SHOWN.items():
        if name in metrics:
            unit = "s" if name.startswith("perf/") else ""
            parts.append(f"{label} {brief(metrics[name])}{unit}")
    return " | ".join(parts)


def brief(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return str(int(value)) if value == int(value) and abs(value) < 1e9 else f"{value:.3g}"
