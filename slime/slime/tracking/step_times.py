"""How long a step takes, and what it spends that time on."""

from __future__ import annotations

import time
from collections.abc import Mapping


class StepClock:
    """Measures from the end of one step to the end of the next."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def lap(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Seconds of the whole step, the share of it that waited for samples, trained tokens per second."""
        began, self.began = self.began, time.monotonic()
        seconds = max(self.began - began, 1e-9)
        times = {
            "perf/step_time": seconds,
            "perf/wait_time_ratio": min(1.0, metrics.get("perf/wait_time", 0.0) / seconds),
        }
        if "train/num_tokens" in metrics:
            train_time = max(metrics["perf/train_time"], 1e-9)
            times["perf/train_tokens_per_second"] = metrics["train/num_tokens"] / train_time
        return times
