"""What every loss returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class LossOutput:
    """A differentiable loss and detached metrics, all scalars and all reduced in the same way."""

    loss: Tensor
    metrics: dict[str, Tensor] = field(default_factory=dict)
