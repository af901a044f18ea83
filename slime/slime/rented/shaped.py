"""Training clients of the shape that several services share, as a `slime.rented.service.Trained`: an SDK with
`forward`, `forward_backward`, `optim_step`, `save_state` and `save_weights_for_sampler`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from slime.rented.failures import failures_translated
from slime.rented.service import AdamStep, Passage

Wanted = TypeVar("Wanted")
Reduction = Literal["sum", "mean"]


@dataclass(frozen=True)
class ShapedPending(Generic[Wanted]):
    """One of the SDK's futures, and what its result becomes."""

    asked: Any
    make: Callable[[Any], Wanted]

    def result(self) -> Wanted:
        with failures_translated():
            return self.make(self.asked.result())


class ShapedTrained:
    """One adapter.

    Args:
        client: an SDK's training client. types: the SDK's module of them.
        reduction: how the server reduces a loss over predictions: some add up, others take the mean of each sequence
            and then of all sequences, which is undone here.
    """

    def __init__(self, client: Any, types: Any, reduction: Reduction) -> None:
        self.client, self.types, self.reduction = client, types, reduction

    def forward(self, passages: Sequence[Passage]) -> ShapedPending[list[list[float]]]:
        data = [self.datum(one.ids, weights=[0.0] * (len(one.ids) - 1)) for one in passages]
        with failures_translated():
            return ShapedPending(self.client.forward(data, "cross_entropy"), log_probs_of)

    def policy_gradient(
        self, loss: str, clip: tuple[float, float], passages: Sequence[Passage]
    ) -> ShapedPending[list[list[float]]]:
        data = []
        for one in passages:
            scale = len(passages) * (len(one.ids) - 1) if self.reduction == "mean" else 1
            advantages = [scale * value for value in one.advantages]
            data.append(self.datum(one.ids, logprobs=one.log_probs, advantages=advantages))
        config = {"clip_low_threshold": clip[0], "clip_high_threshold": clip[1]}
        with failures_translated():
            asked = self.client.forward_backward(
                data, loss, None if loss == "importance_sampling" else config
            )
            return ShapedPending(asked, log_probs_of)

    def step(self, adam: AdamStep) -> ShapedPending[dict[str, float]]:
        params = self.types.AdamParams(
            learning_rate=adam.learning_rate,
            beta1=adam.beta1,
            beta2=adam.beta2,
            eps=adam.eps,
            weight_decay=adam.weight_decay,
            grad_clip_norm=adam.clip_norm,
        )
        with failures_translated():
            return ShapedPending(self.client.optim_step(params), lambda found: dict(found.metrics or {}))

    def save_sampler(self, name: str) -> ShapedPending[str]:
        with failures_translated():
            return ShapedPending(self.client.save_weights_for_sampler(name), lambda found: str(found.path))

    def save_state(self, name: str) -> ShapedPending[str]:
        with failures_translated():
            return ShapedPending(self.client.save_state(name), lambda found: str(found.path))

    def datum(self, ids: Sequence[int], **inputs: Sequence[float]) -> Any:
        """All but the last id [N - 1], what they predict, and one number for each prediction by name."""
        tensor = self.types.TensorData.from_numpy
        tensors = {name: tensor(np.asarray(values, dtype=np.float32)) for name, values in inputs.items()}
        tensors["target_tokens"] = tensor(np.asarray(ids[1:], dtype=np.int64))
        return self.types.Datum(
            model_input=self.types.ModelInput.from_ints(list(ids[:-1])), loss_fn_inputs=tensors
        )


def log_probs_of(output: Any) -> list[list[float]]:
    return [[float(value) for value in one["logprobs"].data] for one in output.loss_fn_outputs]
