"""A model with its gradients, AdamW optimizer, learning rate and mean weights; used for policy and critic."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from slime.errors import unknown_name
from slime.training.core.host_copies import local_part
from slime.training.core.model import PackModel
from slime.training.core.packing import PackedBatch
from slime.training.core.part import Part

if TYPE_CHECKING:
    from slime.flags.optimizer import OptimizerArguments
    from slime.types import Sample

Model = TypeVar("Model", bound=PackModel, covariant=True)
LossOf = Callable[[int, PackedBatch, Any], Tensor]
"""Maps (number of the micro-batch, pack, output of the model) to the loss. The output is a distribution over the
targets. A critic outputs values [T]; a custom loss on logits gets raw logits [1, N, V]."""
WARM_UP = 4
"""Step n has at least the weight 4 / (n + 4) in the mean, so early steps lose influence."""


class Learner(ABC, Generic[Model]):
    """One rank's share of a trained model. All ranks must make the same calls."""

    model: Model
    optimizer: torch.optim.Optimizer

    @abstractmethod
    def clear(self) -> None:
        """Clears the gradients."""

    @abstractmethod
    def accumulate(self, packs: Sequence[PackedBatch], loss_of: LossOf) -> None:
        """Accumulates the gradients of the losses of all ranks' micro-batches; `packs` are this rank's."""

    @abstractmethod
    def add_up(self, sums: dict[str, float]) -> dict[str, float]:
        """Returns the sums of metrics over all ranks, on every rank."""

    @abstractmethod
    def clip(self, loss: float, max_norm: float, where: str) -> float:
        """Returns the gradient norm of the whole model, and clips the gradient to `max_norm` (0: no
        clipping).

        Raises:
            TrainError: loss or gradient is not finite. All ranks have the same numbers, so all raise or none.
        """

    @abstractmethod
    def move(self) -> None:
        """Applies the gradients to the weights."""

    @abstractmethod
    def part(self, prefix: str = "", steps: int = 0) -> Part:
        """Returns the checkpoint part of the model and its optimizer."""

    def update(self, rate: float) -> None:
        """Makes one optimizer step at a learning rate."""
        set_learning_rate(self.optimizer, rate)
        self.move()


def build_optimizer(model: nn.Module, args: OptimizerArguments) -> torch.optim.AdamW:
    """Returns AdamW over the trainable parameters. The learning rate is set before every step."""
    return torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=args.lr,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_eps,
        weight_decay=args.weight_decay,
        fused=True,
    )


def learning_rate(args: OptimizerArguments, step: int, highest: float | None = None) -> float:
    """Returns the learning rate of optimizer step `step` (from 0): linear warm-up, then a decay to `min_lr`.

    It depends only on the step number, so a resumed run continues with the same rate.

    Args:
        highest: replaces --lr; the lowest rate is scaled in proportion.
    """
    top = args.lr if highest is None else highest
    lowest = args.min_lr * top / args.lr if args.lr else 0.0
    warmup = args.lr_warmup_iters
    if step < warmup:
        return float(top * (step + 1) / warmup)
    if args.lr_decay_style == "inverse-square-root":
        return float(max(lowest, top * math.sqrt(max(warmup, 1) / max(step + 1, warmup, 1))))
    if args.lr_decay_style == "constant":
        return float(top)
    assert args.lr_decay_iters is not None
    return float(lowest + (top - lowest) * _share(args, step - warmup, args.lr_decay_iters - warmup))


def step_scale(
    args: OptimizerArguments,
    samples: Sequence[Sample],
    trained: Sequence[Sample],
    gate_scale: float,
    unhinted_rate: float = 1.0,
) -> float:
    """Returns the factor of a step's learning rate: the gate's factor times min(1, sqrt(n /
    --lr-batch-reference)).

    AdamW's steps have the same length for few samples as for many, but more noise. For the same reason the rate of
    distilled extra steps falls to 0 with --extra-decay-steps, so an update of few steps also moves little: with a
    constant rate, two such steps took half of a learned preference from SmolLM2-135M (lab/findings/dreaming.md).

    Args:
        samples: samples of the whole rollout; companions do not count.
        trained: samples of this step. If all of them are only distilled, as dreams are, the batch size does
            not matter, and the gate does not raise the rate: SmolLM2-135M learned a preference more slowly at
            twice the rate, and lost more requests (lab/findings/dreaming.md).
        gate_scale: factor of the gate.
        unhinted_rate: further factor if none of the trained samples has a hint (`LossSpec`).
    """
    reference = args.lr_batch_reference
    if all(sample.divergence for sample in trained):
        left = max(sample.companion for sample in samples) - trained[0].companion + 1
        decay = min(1.0, left / args.extra_decay_steps) if args.extra_decay_steps else 1.0
        return min(1.0, gate_scale) * decay
    if not any(sample.is_hinted for sample in trained):
        gate_scale *= unhinted_rate
    count = sum(not sample.companion for sample in samples)
    return gate_scale * (math.sqrt(min(1.0, count / reference)) if reference and count else 1.0)


def _share(args: OptimizerArguments, step: int, steps: int) -> float:
    """Returns the remaining fraction between lowest and highest rate after `step` of the decay's `steps`."""
    style: str = args.lr_decay_style
    if style == "WSD":  # warm-up, stable, decay: constant at the highest rate until the last steps
        assert args.lr_wsd_decay_iters is not None
        step, steps, style = (
            step - (steps - args.lr_wsd_decay_iters),
            args.lr_wsd_decay_iters,
            args.lr_wsd_decay_style,
        )
    progress = min(1.0, max(0.0, step / steps))
    shares: dict[str, float] = {
        "linear": 1 - progress,
        "cosine": (1 + math.cos(math.pi * progress)) / 2,
        "exponential": 2 * 0.5**progress - 1,
        "minus_sqrt": 1 - math.sqrt(progress),
    }
    if style not in shares:
        raise unknown_name(
            "decay of the learning rate", style, ("constant", "inverse-square-root", "WSD", *shares)
        )
    return shares[style]


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


class StepAverage:
    """Running mean of one rank's weights over the optimizer steps of one update: an additional fp32 copy of the trained
    parameters.

    Single steps oscillate; the mean of the steps is closer to the optimum (Polyak and Juditsky 1992; Zhang et al. 2019,
    "Lookahead Optimizer"). The mean replaces the last weights: it is served, and the next update starts from it.

    Args:
        decay: largest weight of the earlier mean at each step; 0 disables averaging.
    """

    def __init__(self, parts: Sequence[Part], decay: float) -> None:
        self.parts, self.decay = parts, decay
        self.mean: list[Tensor] = []
        self.steps = 0

    @torch.no_grad()
    def add(self) -> None:
        """Adds the current weights to the mean."""
        self.steps += 1
        if not self.decay:
            return
        now = self._weights()
        if not self.mean:
            self.mean = [tensor.to(_wide(tensor), copy=True) for tensor in now]
            return
        decay = min(self.decay, self.steps / (self.steps + WARM_UP))
        for mean, tensor in zip(self.mean, now, strict=True):
            mean.lerp_(tensor.to(mean.dtype), 1 - decay)

    @torch.no_grad()
    def put(self) -> None:
        """Replaces the weights by the mean if it includes more than one step. Every rank must call this."""
        if not self.mean or self.steps < 2:
            return
        for tensor, mean in zip(self._weights(), self.mean, strict=True):
            tensor.copy_(mean)
        for part in self.parts:
            part.publish()

    def _weights(self) -> list[Tensor]:
        """Returns this rank's shards of the trained weights."""
        return [local_part(tensor).detach() for part in self.parts for tensor in part.moved]


@contextmanager
def averaged(parts: Sequence[Part], decay: float) -> Iterator[StepAverage]:
    """Averages the weights over the steps in the context. On exit the mean replaces the weights, even after
    an error."""
    average = StepAverage(parts, decay)
    try:
        yield average
    finally:
        average.put()


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)
