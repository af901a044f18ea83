"""Gradients of a model in parts: kept in fp32, added up over the ranks, measured and clipped."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from slime.backends.megatron.parallel import sum_over
from slime.backends.megatron.pipeline import ShardedModel
from slime.backends.megatron.weights import WeightMap
from slime.errors import TrainError

BUCKET = 64 * 2**20  # numbers that are added up over ranks at a time
EMBEDDING, HEAD = "embedding.word_embeddings.weight", "output_layer.weight"


@dataclass(frozen=True)
class Trained:
    """One parameter: the one that computes, and the one in fp32 (or float64) that the optimizer moves.

    Attributes:
        master: the parameter itself where that is wide enough.
        counts: whether this rank's part counts in the norm over the ranks of one model.
        partial: the ranks of a tensor-parallel group have parts of the gradient of a parameter that each has whole.
    """

    name: str
    parameter: nn.Parameter
    master: nn.Parameter
    counts: bool
    partial: bool


class Gradients:
    """The gradients of one rank's part of a model. Every rank makes the same calls.

    Args:
        frozen: none will be taken; what computes is all there is.
    """

    def __init__(self, model: ShardedModel, weights: WeightMap, frozen: bool = False) -> None:
        self.frozen, self.parallel = frozen, model.parallel
        self.tied_head = weights.hf.tie_word_embeddings and self.parallel.pp.size > 1
        self.all = [self._trained(model, weights, *pair) for pair in model.core.named_parameters()]

    def _trained(
        self, model: ShardedModel, weights: WeightMap, name: str, parameter: nn.Parameter
    ) -> Trained:
        entry = weights.entries[name]
        master = parameter
        if parameter.dtype == torch.bfloat16 and not self.frozen:
            master = nn.Parameter(parameter.detach().float())
            parameter.register_post_accumulate_grad_hook(_into(master))  # type: ignore[no-untyped-call]
        cut = entry.dim is not None
        second = self.tied_head and name == HEAD
        whole_norm = model.core.config.sequence_parallel and not cut
        return Trained(
            name,
            parameter,
            master,
            counts=(cut or self.parallel.tp.rank == 0) and not second,
            partial=entry.partial or whole_norm,
        )

    @property
    def masters(self) -> nn.ParameterList:
        """What the optimizer moves."""
        return nn.ParameterList([each.master for each in self.all])

    def clear(self) -> None:
        for each in self.all:
            each.master.grad = each.parameter.grad = None

    def collect(self) -> None:
        """Adds up what the ranks have computed. Context-parallel ranks count each token as often as they are."""
        for each in self.all:
            if each.master.grad is None:  # no micro-batch reached it
                each.master.grad = torch.zeros_like(each.master)
        if self.parallel.tp.size > 1:
            self._add([each for each in self.all if each.partial], self.parallel.tp.group)
        if self.parallel.copies.size > 1:
            self._add(self.all, self.parallel.copies.group)
        if self.parallel.cp.size > 1:
            for each in self.all:
                _grad(each).div_(self.parallel.cp.size)
        if self.tied_head and (self.parallel.is_first or self.parallel.is_last):
            tied = [each for each in self.all if each.name in (EMBEDDING, HEAD)]
            self._add(tied, self.parallel.ends)

    def clip(self, loss: float, max_norm: float, where: str) -> float:
        """The gradient's norm over the whole model, after which it is clipped to `max_norm` (0: not at all).

        Raises:
            TrainError: loss or gradient is not finite. Every rank sees the same numbers, so all raise or none.
        """
        if not math.isfinite(loss):
            raise TrainError(f"{where}: the loss is {loss}; the step was refused and nothing of it applied")
        squares = torch.zeros((), dtype=torch.float64, device=self.all[0].master.device)
        for each in self.all:
            if each.counts:
                squares += torch.linalg.vector_norm(_grad(each)).double().square()
        norm = float(sum_over(squares, self.parallel.model).sqrt())
        if not math.isfinite(norm):
            raise TrainError(f"{where}: the gradient's norm is {norm}; the step was refused and not applied")
        factor = max_norm / (norm + 1e-6)
        if max_norm > 0 and factor < 1:
            for each in self.all:
                _grad(each).mul_(factor)
        return norm

    @torch.no_grad()
    def publish(self) -> None:
        """What the optimizer has moved becomes what computes."""
        for each in self.all:
            if each.master is not each.parameter:
                each.parameter.copy_(each.master)

    def _add(self, entries: list[Trained], group: object) -> None:
        bucket: list[Tensor] = []
        for number, each in enumerate(entries):
            bucket.append(_grad(each))
            last = number == len(entries) - 1
            if last or sum(x.numel() for x in bucket) >= BUCKET:
                flat = torch.cat([x.flatten() for x in bucket])
                torch.distributed.all_reduce(flat, group=group)
                for x, total in zip(bucket, torch.split(flat, [x.numel() for x in bucket]), strict=True):
                    x.copy_(total.view_as(x))
                bucket = []


def _into(master: nn.Parameter) -> Callable[[Tensor], None]:
    """Adds a gradient up in fp32 as soon as it is there."""

    def add(parameter: Tensor) -> None:
        assert parameter.grad is not None
        wide = parameter.grad.float()
        master.grad = wide if master.grad is None else master.grad.add_(wide)
        parameter.grad = None

    return add


def _grad(each: Trained) -> Tensor:
    assert each.master.grad is not None
    return each.master.grad
