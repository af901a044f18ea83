"""Averages the weights over the optimizer steps of one update; the mean replaces the last weights.

Single steps oscillate; the mean of the steps is closer to the optimum (Polyak and Juditsky 1992; Zhang et al.
2019, "Lookahead Optimizer"). The mean is served, and the next update starts from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from slime.training.core.host_copies import local_part
from slime.training.core.part import Part

WARM_UP = 4
"""Step n has at least the weight 4 / (n + 4), so early steps lose influence."""


class StepAverage:
    """Running mean of one rank's weights during one update: an additional fp32 copy of the trained
    parameters.

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
