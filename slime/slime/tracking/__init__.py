"""Reports a run: metrics to files and services, progress to the terminal. Imports no torch."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slime.tracking.lines import evaluation_line, progress_line
from slime.tracking.pending_metrics import PendingMetrics
from slime.tracking.sinks import JsonlSink, Sink, TensorBoardSink, TrackioSink, WandbSink
from slime.tracking.terminal import display
from slime.utils.logging import PROGRESS

if TYPE_CHECKING:
    from slime.flags import Arguments

logger = logging.getLogger(__name__)
METRICS_FILE = "metrics.jsonl"


class Tracker:
    """Sends every metric to all destinations that the arguments enable.

    Metrics are named `train/`, `rollout/`, `perf/`, `weights/` and `eval/`; their step is the rollout id, in
    W&B with --wandb-always-use-train-step the number of optimizer steps before it.

    Raises:
        ConfigError: W&B or trackio is enabled but cannot be used.
    """

    def __init__(self, args: Arguments) -> None:
        self.sinks: list[Sink] = [JsonlSink(Path(args.run_dir) / METRICS_FILE)]
        if args.use_tensorboard:
            self.sinks.append(TensorBoardSink(args.tensorboard_dir))
        if args.use_trackio:
            self.sinks.append(TrackioSink(args))
        self.wandb = WandbSink(args) if args.use_wandb else None
        samples = args.rollout_batch_size * args.n_samples_per_prompt
        size = args.global_batch_size or samples
        self.steps_per_rollout = samples * args.train_epochs / size if args.wandb_always_use_train_step else 1
        self.display = display(args.progress, args.num_rollout)
        self.pending = PendingMetrics(Path(args.run_dir), METRICS_FILE)

    def expect(self, rollout_id: int, metrics: Mapping[str, float]) -> None:
        """Stores a rollout's metrics on disk, to be logged when its version is live."""
        self.pending.keep(rollout_id, metrics)

    def end_now(self, rollout_id: int, metrics: Mapping[str, float]) -> None:
        """Appends the pending row to the file in a separate write, when a driver ends."""
        self.pending.add_row(rollout_id, metrics)

    def log_pending(self, trained: int) -> None:
        """Logs the pending metrics of an earlier driver if the weights include their rollout (up to `trained`)."""
        left = self.pending.left()
        if left is not None and left[0] <= trained:
            self.write(*left, in_file=not self.pending.has_row(left[0]))
        self.pending.forget()

    def log(self, rollout_id: int, metrics: Mapping[str, float], adapter: str | None = None) -> None:
        """Logs the metrics of a rollout and shows its line, with the name of the trained adapter if there are
        several."""
        self.write(rollout_id, metrics)
        self.pending.forget()
        whose = "" if adapter is None else f" | adapter {adapter}"
        self.show(progress_line(rollout_id, metrics) + whose)

    def log_evaluation(self, rollout_id: int, metrics: Mapping[str, float]) -> None:
        """Logs `eval/*` metrics and shows the scores."""
        self.write(rollout_id, metrics)
        self.show(evaluation_line(rollout_id, metrics))

    def show(self, line: str) -> None:
        """Writes a line to the terminal and to the log file, which may be the only output that is read."""
        self.display.line(line)
        PROGRESS.info("%s", line)

    def write(self, step: int, metrics: Mapping[str, float], in_file: bool = True) -> None:
        for sink in self.sinks:
            if in_file or not isinstance(sink, JsonlSink):
                sink.write(step, metrics)
        if self.wandb is not None:
            self.wandb.write(int(step * self.steps_per_rollout), metrics)

    def at(self, rollout_id: int, doing: str) -> None:
        """Shows the current phase of the run."""
        logger.debug("%s", doing)
        self.display.at(rollout_id, doing)

    def close(self) -> None:
        self.display.close()
        for sink in self.sinks:
            sink.close()
        if self.wandb is not None:
            self.wandb.close()


__all__ = ["Tracker", "progress_line"]


class StepClock:
    """Measures the time from the end of one step to the end of the next."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def lap(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns the seconds of the whole step, the share of time spent waiting for samples, and trained tokens per
        second."""
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
