"""A trainer steps aside: models and optimizer states move to CPU memory and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from slime.training.core.part import Part


def to_cpu(parts: Sequence[Part]) -> None:
    """Frees the GPU of everything that is trained."""
    for part in parts:
        part.model.to("cpu")
    _move_states(parts, torch.device("cpu"))
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def to_device(parts: Sequence[Part], device: torch.device) -> None:
    """Brings back what `to_cpu` moved."""
    for part in parts:
        part.model.to(device)
    _move_states(parts, device)


def _move_states(parts: Sequence[Part], device: torch.device) -> None:
    for part in parts:
        for state in part.optimizer.state.values() if part.optimizer else ():
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.dim():
                    state[name] = value.to(device)
