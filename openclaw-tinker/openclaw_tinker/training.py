"""Tinker's TrainingClient as a `slime.rented.service.Trained`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import tinker
from tinker import types

from openclaw_tinker.failures import failures_translated
from slime.rented.service import AdamStep, Passage

Wanted = TypeVar("Wanted")
Reduction = Literal["sum", "mean"]


@dataclass(frozen=True)
class TinkerPending(Generic[Wanted]):
    """One of the SDK's futures, and what its result becomes."""

    asked: Any
    make: Callable[[Any], Wanted]

    def result(self) -> Wanted:
        with failures_translated():
            return self.make(self.asked.result())


class TinkerTrained:
    """One adapter.

    Args:
        reduction: how the server reduces a loss over predictions: Tinker adds up, skyrl takes the mean of each sequence
            and then of all sequences, which is undone here.
    """

    def __init__(self, client: tinker.TrainingClient, reduction: Reduction) -> None:
        self.client, self.reduction = client, reduction

    def forward(self, passages: Sequence[Passage]) -> TinkerPending[list[list[float]]]:
        data = [datum(one.ids, weights=[0.0] * (len(one.ids) - 1)) for one in passages]
        with failures_translated():
            return TinkerPending(self.client.forward(data, "cross_entropy"), log_probs_of)

    def policy_gradient(
        self, loss: str, clip: tuple[float, float], passages: Sequence[Passage]
    ) -> TinkerPending[list[list[float]]]:
        data = []
        for one in passages:
            scale = len(passages) * (len(one.ids) - 1) if self.reduction == "mean" else 1
            advantages = [scale * value for value in one.advantages]
            data.append(datum(one.ids, logprobs=one.log_probs, advantages=advantages))
        config = {"clip_low_threshold": clip[0], "clip_high_threshold": clip[1]}
        kind: Any = loss
        with failures_translated():
            asked = self.client.forward_backward(
                data, kind, None if loss == "importance_sampling" else config
            )
            return TinkerPending(asked, log_probs_of)

    def step(self, adam: AdamStep) -> TinkerPending[dict[str, float]]:
        params = types.AdamParams(
            learning_rate=adam.learning_rate,
            beta1=adam.beta1,
            beta2=adam.beta2,
            eps=adam.eps,
            weight_decay=adam.weight_decay,
            grad_clip_norm=adam.clip_norm,
        )
        with failures_translated():
            return TinkerPending(self.client.optim_step(params), lambda found: dict(found.metrics or {}))

    def save_sampler(self, name: str) -> TinkerPending[str]:
        with failures_translated():
            return TinkerPending(self.client.save_weights_for_sampler(name), lambda found: str(found.path))

    def save_state(self, name: str) -> TinkerPending[str]:
        with failures_translated():
            return TinkerPending(self.client.save_state(name), lambda found: str(found.path))


def datum(ids: Sequence[int], **inputs: Sequence[float]) -> types.Datum:
    """All but the last id [N - 1], what they predict, and one number for each prediction by name."""
    tensors: dict[str, Any] = {
        name: types.TensorData.from_numpy(np.asarray(values, dtype=np.float32))
        for name, values in inputs.items()
    }
    tensors["target_tokens"] = types.TensorData.from_numpy(np.asarray(ids[1:], dtype=np.int64))
    return types.Datum(model_input=types.ModelInput.from_ints(list(ids[:-1])), loss_fn_inputs=tensors)


def log_probs_of(output: types.ForwardBackwardOutput) -> list[list[float]]:
    return [[float(value) for value in one["logprobs"].data] for one in output.loss_fn_outputs]
