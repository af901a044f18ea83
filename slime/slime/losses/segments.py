"""Which of the T tokens of a micro-batch belong to which sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Segments:
    """The samples of a micro-batch, one after the other. The losses see their T trained tokens only.

    Attributes:
        total_lengths: tokens of each sample, prompt and response.
        masks: [R] of bool for each sample: which response tokens are trained, at least one of them.
    """

    total_lengths: tuple[int, ...]
    masks: tuple[Tensor, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Trained tokens of each sample; their sum is T."""
        return tuple(int(mask.sum()) for mask in self.masks)

    @property
    def response_lengths(self) -> tuple[int, ...]:
        """Response tokens of each sample, trained or not."""
        return tuple(len(mask) for mask in self.masks)

    @cached_property
    def _positions(self) -> Tensor:
        return torch.cat(self.masks).nonzero().squeeze(-1)

    def split(self, values: Tensor) -> list[Tensor]:
        """[T] -> one tensor a sample."""
        return list(torch.split(values, list(self.counts)))

    def mean(self, values: Tensor) -> Tensor:
        """[T] -> mean of each sample [S]."""
        return torch.stack([part.mean() for part in self.split(values)])

    def spread(self, values: Tensor) -> Tensor:
        """One value a sample [S] -> [T]."""
        return values.repeat_interleave(torch.tensor(self.counts, device=values.device))

    def widen(self, values: Tensor) -> Tensor:
        """[T] -> all response tokens [sum of R], 0 on those that are not trained. Differentiable."""
        wide = values.new_zeros(sum(self.response_lengths))
        return wide.index_copy(0, self._positions, values)

    def widen_split(self, values: Tensor) -> list[Tensor]:
        """[T] -> [R] for each sample, 0 on tokens that are not trained."""
        return list(torch.split(self.widen(values), list(self.response_lengths)))

    def narrow(self, values: Tensor | Sequence[Tensor]) -> Tensor:
        """The inverse of `widen` and `widen_split`: [sum of R] -> [T]."""
        flat = values if isinstance(values, Tensor) else torch.cat(list(values))
        return flat[self._positions]
