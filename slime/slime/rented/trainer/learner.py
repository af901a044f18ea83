"""Gradients and optimizer of an adapter at a service.

The loss is computed here, by the same formulas as for other backends, from the log-probs of a forward pass. The
backward pass needs only the loss's gradient by each log-prob: importance sampling with the log-probs of the forward
pass as old ones has the gradient -A at each token, so A is minus that gradient. Two passes therefore support any loss
of the sampled tokens' log-probs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from slime.errors import TrainError
from slime.rented.service import AdamStep, TrainingSequence
from slime.rented.trainer.model import OwnTokens, RentedModel, at_targets, ids_of, over_sequence
from slime.training.core.learner import Learner, LossOf
from slime.training.core.packing import PackedBatch
from slime.training.core.part import Part

UNBOUNDED = (0.0, 1e9)
"""A clip range that never clips."""


@dataclass(frozen=True)
class OnePass:
    """A policy loss that the service computes itself.

    Attributes:
        terms: (number of the micro-batch, pack) -> old log-probs [T], advantages times the weight of each token [T].
    """

    loss: str
    clip: tuple[float, float]
    terms: Callable[[int, PackedBatch], tuple[Tensor, Tensor]]


class RentedLearner(Learner[RentedModel]):
    """The trained adapter of one run.

    Args:
        adam: optimizer settings of every step, except the learning rate, which `update` gets.

    Attributes:
        measured: metrics that the service returned for the last step.
        one_pass: set for a step whose loss the service computes.
    """

    def __init__(self, model: RentedModel, adam: AdamStep) -> None:
        self.model, self.adam = model, adam
        self.measured: dict[str, float] = {}
        self.one_pass: OnePass | None = None
        self._pending: list[Callable[[], object]] = []

    def clear(self) -> None:
        """Discards pending requests. A step clears the gradient; one that was not applied is lost with the trainer."""
        self._pending.clear()

    def accumulate(self, packs: Sequence[PackedBatch], loss_of: LossOf) -> None:
        """Sends all packs in one forward and one backward request, or in one request if the service computes the
        loss."""
        if self.one_pass is not None:
            self._in_one_pass(self.one_pass, packs, loss_of)
            return
        numbers = [number for number, packed in enumerate(packs) if not packed.is_filler]
        sequences = [ids_of(packs[number]) for number in numbers]
        log_probs = dict(zip(numbers, self.model.forward(sequences) if sequences else [], strict=True))
        batch = []
        for number, packed in enumerate(packs):
            leaf = torch.zeros(1) if packed.is_filler else at_targets(packed, log_probs[number])
            leaf.requires_grad_(True)
            loss = loss_of(number, packed, OwnTokens(packed.targets, leaf))
            torch.autograd.backward(loss)
            if packed.is_filler or leaf.grad is None:
                continue
            if not (bool(torch.isfinite(loss)) and bool(torch.isfinite(leaf.grad).all())):
                raise TrainError("a loss or its gradient is not finite; the step was not applied")
            advantages = over_sequence(packed, -leaf.grad)
            batch.append(TrainingSequence(ids_of(packed), log_probs[number], advantages))
        self.send("importance_sampling", UNBOUNDED, batch)

    def _in_one_pass(self, one_pass: OnePass, packs: Sequence[PackedBatch], loss_of: LossOf) -> None:
        """Lets the service compute the loss; it is computed here too, only for metrics."""
        numbers = [number for number, packed in enumerate(packs) if not packed.is_filler]
        batch = [
            TrainingSequence(
                ids_of(packs[number]),
                *(over_sequence(packs[number], x) for x in one_pass.terms(number, packs[number])),
            )
            for number in numbers
        ]
        log_probs = dict(zip(numbers, self.send(one_pass.loss, one_pass.clip, batch)(), strict=True))
        with torch.no_grad():
            for number, packed in enumerate(packs):
                values = torch.zeros(1) if packed.is_filler else at_targets(packed, log_probs[number])
                loss_of(number, packed, OwnTokens(packed.targets, values))

    def send(
        self, loss: str, clip: tuple[float, float], batch: Sequence[TrainingSequence]
    ) -> Callable[[], list[list[float]]]:
        """Starts the backward pass; the returned function waits for its log-probs."""
        if not batch:
            return list
        pending = self.model.adapter.policy_gradient(loss, clip, batch)
        self.model.meter.add(train=sum(len(one.ids) for one in batch))
        self._pending.append(pending.result)
        return pending.result

    def add_up(self, sums: dict[str, float]) -> dict[str, float]:
        return sums

    def clip(self, loss: float, max_norm: float, where: str) -> float:
        """Returns NaN as the norm: the service clips and does not report it."""
        if not math.isfinite(loss):
            raise TrainError(f"{where}: the loss is {loss}; the step was not applied")
        return math.nan

    def update(self, rate: float) -> None:
        """Sends the optimizer step right after the backward pass; returns when both are done."""
        if not self._pending:
            return
        step = self.model.adapter.step(replace(self.adam, learning_rate=rate))
        for wait in self._pending:
            wait()
        self.measured = step.result()

    def move(self) -> None:
        raise NotImplementedError("`update` moves the weights and sets the rate in one request")

    def part(self, prefix: str = "", steps: int = 0) -> Part:
        raise NotImplementedError(
            "the service keeps weights and optimizer: a checkpoint contains their address"
        )
