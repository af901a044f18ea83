"""A model with its gradients and its optimizer (AdamW), as steps of policy and critic use it, and its learning rate."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from slime.errors import unknown_name
from slime.training.core.model import PackModel
from slime.training.core.packing import PackedBatch
from slime.training.core.part import Part

if TYPE_CHECKING:
    from slime.flags.optimizer import OptimizerArguments
    from slime.types import Sample

Model = TypeVar("Model", bound=PackModel, covariant=True)
LossOf = Callable[[int, PackedBatch, Any], Tensor]
"""(number of the micro-batch, pack, output of the model) -> loss. The output is a distribution over the targets; of a
critic, values [T]; for a custom loss on logits, raw logits [1, N, V]."""


class Learner(ABC, Generic[Model]):
    """One rank's part. Every rank makes the same calls."""

    model: Model
    optimizer: torch.optim.Optimizer

    @abstractmethod
    def clear(self) -> None:
        """Forgets the gradients."""

    @abstractmethod
    def accumulate(self, packs: Sequence[PackedBatch], loss_of: LossOf) -> None:
        """Adds up the gradients of the losses of this rank's micro-batches and those of the other ranks."""

    @abstractmethod
    def add_up(self, sums: dict[str, float]) -> dict[str, float]:
        """Metrics of this rank's micro-batches -> those of all, on every rank."""

    @abstractmethod
    def clip(self, loss: float, max_norm: float, where: str) -> float:
        """Returns the gradient's norm over the whole model, after which it is clipped to `max_norm` (0: not at all).

        Raises:
            TrainError: loss or gradient is not finite. Every rank sees the same numbers, so all raise or none.
        """

    @abstractmethod
    def move(self) -> None:
        """Moves the weights by the gradients."""

    @abstractmethod
    def part(self, prefix: str = "", steps: int = 0) -> Part:
        """Returns the part of model and optimizer in a checkpoint."""

    def update(self, rate: float) -> None:
        """One step of the optimizer at a learning rate."""
        set_learning_rate(self.optimizer, rate)
        self.move()


def build_optimizer(model: nn.Module, args: OptimizerArguments) -> torch.optim.AdamW:
    """AdamW over the trainable parameters. The learning rate is set before every step."""
    return torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=args.lr,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_eps,
        weight_decay=args.weight_decay,
        fused=True,
    )


def learning_rate(args: OptimizerArguments, step: int, highest: float | None = None) -> float:
    """Learning rate of optimizer step `step`, from 0: linear warm-up, then the chosen decay to `min_lr`.

    It follows from the number of the step alone, so a resumed run goes on exactly where it was.

    Args:
        highest: in place of --lr; the lowest one keeps its proportion to it.
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


def batch_scale(args: OptimizerArguments, samples: Sequence[Sample], trained: Sequence[Sample]) -> float:
    """Returns the factor of the learning rate of a small batch: sqrt(n / --lr-batch-reference), 1 at most.

    AdamW's step is as long for two samples as for many, and noisier.

    Args:
        samples: of the whole rollout; companions do not count.
        trained: of this step. If all only follow their teacher, as dreams do, the factor is 1: there are as many of them
            after a small batch as after a large one.
    """
    reference = args.lr_batch_reference
    if all(sample.divergence for sample in trained):
        return 1.0
    count = sum(not sample.companion for sample in samples)
    return math.sqrt(min(1.0, count / reference)) if reference and count else 1.0


def _share(args: OptimizerArguments, step: int, steps: int) -> float:
    """Returns how much of the way from the lowest to the highest rate is left after `step` of `steps` of the decay."""
    style: str = args.lr_decay_style
    if style == "WSD":  # warm-up, stable, decay: the highest rate until the last steps
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
