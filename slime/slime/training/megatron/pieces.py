"""A trained parameter of one rank, and the pieces of it that checkpoints and optimizer know."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from slime.training.megatron.parallel import Axis


@dataclass
class Trained:
    """One parameter.

    Attributes:
        copies: the ranks that have the same part of it.
        wide: dtype of its gradient and of what the optimizer moves.
        share: what this rank's part counts in a norm over the ranks of one model; those who have the same share it.
        partial: the ranks of a tensor-parallel group have parts of the gradient of a parameter that each has whole.
    """

    name: str
    parameter: nn.Parameter
    copies: Axis
    wide: torch.dtype
    share: float
    partial: bool
    added: Tensor | None = None

    def watch(self) -> None:
        """Sums gradients as soon as they are computed, if their dtype is too narrow."""
        if self.parameter.dtype != self.wide:
            self.parameter.register_post_accumulate_grad_hook(self._add)  # type: ignore[no-untyped-call]

    def _add(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        wide = parameter.grad.to(self.wide)
        self.added = wide if self.added is None else self.added.add_(wide)
        parameter.grad = None

    @property
    def gradient(self) -> Tensor:
        """Returns the gradient that was added up so far; zeros where no micro-batch reached the parameter."""
        gradient = self.added if self.parameter.dtype != self.wide else self.parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(self.parameter, dtype=self.wide)
            if self.parameter.dtype != self.wide:
                self.added = gradient
            else:
                self.parameter.grad = gradient
        return gradient

    def forget(self) -> None:
        self.added = self.parameter.grad = None


@dataclass(frozen=True)
class Cut:
    """The division of a tensor: its dimension, and the ranks."""

    dim: int
    axis: Axis


@dataclass
class Piece:
    """Rows of a parameter that make one tensor of a checkpoint.

    Attributes:
        name: in the whole model. trained: the parameter. rows: those of this rank's part of it.
        cut: among the ranks that hold one model together; None: whole on each of them.
        own_rows: those of `rows` that this rank moves, counted from the first one.
        master: them, as wide as they are optimized. Shares the parameter's memory if that is as wide.
        gradient: of `master`, but where the model computes.
    """

    name: str
    trained: Trained
    rows: slice
    cut: Cut | None
    own_rows: slice
    master: nn.Parameter
    gradient: Tensor | None = None

    def of(self, tensor: Tensor) -> Tensor:
        """Returns the rows of this piece in the parameter, its gradient or a tensor like it."""
        return tensor[self.rows]
