"""A trained parameter of one rank, and its pieces in checkpoints and optimizers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from slime.training.megatron.parallel import Axis


@dataclass
class Trained:
    """One trained parameter.

    Attributes:
        copies: the ranks that have the same shard of it.
        wide: dtype of its gradient and of the optimizer's weights.
        share: weight of this rank's shard in a norm over the ranks of one model, less than 1 if several ranks have
            the same shard.
        partial: every tensor-parallel rank has the whole parameter, but only a part of its gradient.
    """

    name: str
    parameter: nn.Parameter
    copies: Axis
    wide: torch.dtype
    share: float
    partial: bool
    added: Tensor | None = None

    def watch(self) -> None:
        """Accumulates gradients in a wider dtype as soon as they are computed, if theirs is too narrow."""
        if self.parameter.dtype != self.wide:
            self.parameter.register_post_accumulate_grad_hook(self._add)  # type: ignore[no-untyped-call]

    def _add(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        wide = parameter.grad.to(self.wide)
        self.added = wide if self.added is None else self.added.add_(wide)
        parameter.grad = None

    @property
    def gradient(self) -> Tensor:
        """Returns the accumulated gradient; zeros if no micro-batch used the parameter."""
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
    """The dimension and the ranks by which a tensor is sharded."""

    dim: int
    axis: Axis


@dataclass
class Piece:
    """The rows of a parameter that form one tensor of a checkpoint.

    Attributes:
        name: name in the whole model.
        trained: the parameter.
        rows: its rows in this rank's shard of the parameter.
        cut: division over the ranks of one model; None: whole on each rank.
        own_rows: the part of `rows` that this rank updates, relative to the first row.
        master: these rows in the optimizer's dtype. Shares the parameter's memory if the dtype is the same.
        gradient: gradient of `master`, on the model's device.
    """

    name: str
    trained: Trained
    rows: slice
    cut: Cut | None
    own_rows: slice
    master: nn.Parameter
    gradient: Tensor | None = None

    def of(self, tensor: Tensor) -> Tensor:
        """Returns this piece's rows of the parameter, of its gradient, or of a tensor of the same shape."""
        return tensor[self.rows]
