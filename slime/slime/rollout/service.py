"""The rollout manager's work, independent of Ray: gets batches and evaluations, and manages the data
source."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slime import replay
from slime.errors import DataError
from slime.hooks import load_hook
from slime.rollout.metrics import (
    batch_metrics,
    episode_metrics,
    pass_rate_metrics,
    reward_failures,
    speed_metrics,
)
from slime.rollout.post_process import post_processed
from slime.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample, flatten

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide


class RolloutService:
    """Generates and evaluates rollouts; all methods are thread-safe."""

    def __init__(self, args: GenerationSide) -> None:
        self.args = args
        self.rollout_function = load_hook(args, "rollout_function_path")
        self.eval_function = load_hook(args, "eval_function_path") or self.rollout_function
        self.log_function = load_hook(args, "custom_rollout_log_function_path")
        self.eval_log_function = load_hook(args, "custom_eval_rollout_log_function_path")
        self.reward_process = load_hook(args, "custom_reward_post_process_path")
        self.convert_samples = load_hook(args, "custom_convert_samples_to_train_data_path")
        self.data_source: Any = None if reads_no_prompts(args) else load_hook(args, "data_source_path")(args)
        self._policies: dict[int, str | None] = {}
        self._positioned = False
        self._under_way: dict[str, float] = {}
        self._lock = threading.Lock()

    def generate(self, rollout_id: int) -> tuple[list[Sample], dict[str, float]]:
        """Blocks until the rollout function has a batch; returns its samples and metrics.

        A restarted service continues with the data after the previous rollout.

        Raises:
            DataError: there are no samples, or a sample is inconsistent.
        """
        began = time.monotonic()
        if not self._positioned:
            self.load(rollout_id - 1)
        with self._noted(f"rollout {rollout_id}"):
            returned = self.rollout_function(self.args, rollout_id, self.data_source, evaluation=False)
        output = train_output(returned)
        self._policies[rollout_id] = output.policy
        samples = list(flatten(output.samples))
        if not samples:
            raise DataError("the rollout function returned no samples; it must block until there are some")
        for sample in samples:
            sample.validate()
        self._settle(rollout_id, samples)
        metrics = self._metrics(rollout_id, output, samples, time.monotonic() - began)
        if self.reward_process is not None or self.convert_samples is not None:
            samples = post_processed(self.args, samples, self.reward_process, self.convert_samples)
        return samples, metrics

    def policy(self, rollout_id: int) -> str | None:
        """Returns the adapter trained on a generated batch; None if there is only one policy."""
        return self._policies.pop(rollout_id, None)

    def evaluate(self, rollout_id: int) -> dict[str, float]:
        """Evaluates the live weights and returns the metrics. Uses no training prompts."""
        with self._noted(f"evaluation at rollout {rollout_id}"):
            output = self.eval_function(self.args, rollout_id, self.data_source, evaluation=True)
        if not isinstance(output, RolloutFnEvalOutput):
            output = RolloutFnEvalOutput(data=output)
        if (pattern := self.args.save_debug_rollout_data) is not None:
            samples = [result.get("samples") or [] for result in output.data.values()]
            replay.save(pattern, rollout_id, list(flatten(samples)), evaluation=True)
        metrics = dict(output.metrics or {})
        if self.eval_log_function is not None and self.eval_log_function(
            rollout_id, self.args, output.data, metrics
        ):
            return {}
        for name, result in output.data.items():
            if result.get("rewards") and f"eval/{name}" not in metrics:
                metrics[f"eval/{name}"] = sum(result["rewards"]) / len(result["rewards"])
        return metrics

    def save(self, rollout_id: int) -> None:
        """Writes the state of the data source after `rollout_id`."""
        if self.data_source is not None:
            self.data_source.save(rollout_id)

    def load(self, rollout_id: int) -> None:
        """Restores the data source's state after `rollout_id` (-1: from the first prompt)."""
        if self.data_source is not None and rollout_id >= 0:
            self.data_source.load(rollout_id)
        self._positioned = True

    def status(self) -> dict[str, Any]:
        """Returns the running work and its duration so far, in seconds."""
        now = time.monotonic()
        with self._lock:
            return {"waiting": {what: round(now - began, 1) for what, began in self._under_way.items()}}

    @contextlib.contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        with self._lock:
            self._under_way[what] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._under_way.pop(what, None)

    def _settle(self, rollout_id: int, samples: Sequence[Sample]) -> None:
        if hasattr(self.data_source, "settle"):
            self.data_source.settle(rollout_id, [[s] for s in samples if s.group_index is not None])

    def _metrics(
        self, rollout_id: int, output: RolloutFnTrainOutput, samples: list[Sample], seconds: float
    ) -> dict[str, float]:
        extra = dict(output.metrics or {})
        if self.log_function is not None and self.log_function(
            rollout_id, self.args, samples, extra, seconds
        ):
            return {}
        metrics = batch_metrics(self.args, output.samples) | speed_metrics(self.args, samples, seconds)
        metrics |= episode_metrics(samples)
        if self.args.log_passrate:
            metrics |= pass_rate_metrics(samples, self.args.reward_key)
        if hasattr(self.data_source, "metrics"):
            metrics |= self.data_source.metrics()
        return metrics | reward_failures.take_metrics() | extra


def reads_no_prompts(args: GenerationSide) -> bool:
    """Returns whether the run has no data source, because its rollout function has its own or batches are
    replayed."""
    return bool(args.disable_rollout_global_dataset or args.load_debug_rollout_data)


def train_output(returned: Any) -> RolloutFnTrainOutput:
    """Converts the result of a rollout function: its output, groups of samples, or plain data.

    Plain data is {"samples": rows, "metrics": ...}; each row is a separate group.

    Raises:
        DataError: a row is not a sample, see `Sample.from_dict`.
    """
    if isinstance(returned, RolloutFnTrainOutput):
        return returned
    if isinstance(returned, Mapping):
        rows = [[Sample.from_dict(row)] for row in returned["samples"]]
        return RolloutFnTrainOutput(rows, returned.get("metrics"), returned.get("policy"))
    return RolloutFnTrainOutput(samples=returned)
