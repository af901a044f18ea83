"""The last live state of one trainer rank, in memory: weights, optimizer, random state, counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from slime.training.core.random_state import random_state, restore_random_state

if TYPE_CHECKING:
    from slime.training.backend import Backend
    from slime.training.core.part import Part


class KeptState:
    """A copy in CPU memory of all that training changes, as large as this rank's weights and optimizer states."""

    def __init__(self, trainer: Backend) -> None:
        self.weights = [[_copy(tensor) for tensor in _weights(part)] for part in trainer.parts]
        self.optimizers = [_optimizer_state(part) for part in trainer.parts]
        self.random = random_state()
        self.global_step, self.version = trainer.global_step, trainer.version
        self.elsewhere = trainer.keep_elsewhere()
        self.critic_steps = trainer.critic.steps if trainer.critic else 0

    @torch.no_grad()
    def restore(self, trainer: Backend) -> None:
        """Brings the rank back to where it was, to the bit; gradients are forgotten."""
        for part, weights, optimizer in zip(trainer.parts, self.weights, self.optimizers, strict=True):
            for tensor, kept in zip(_weights(part), weights, strict=True):
                _local(tensor).copy_(kept)
            if part.optimizer is not None:
                _restore_optimizer(part.optimizer, optimizer)
                part.optimizer.zero_grad(set_to_none=True)
        trainer.return_elsewhere(self.elsewhere)
        restore_random_state(self.random)
        trainer.global_step, trainer.version = self.global_step, self.version
        if trainer.critic is not None:
            trainer.critic.steps = self.critic_steps


def _weights(part: Part) -> Iterator[Tensor]:
    """What computes, and what the optimizer moves where that is another copy; each once. What is frozen stays."""
    for module in part.model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # a forward pass without backward leaves whole weights behind, which would stay as they are
    seen: set[int] = set()
    moved = part.optimizer.param_groups if part.optimizer else []
    parameters = part.model.parameters() if moved else (*part.model.parameters(), *part.model.buffers())
    for tensor in (*parameters, *(p for group in moved for p in group["params"])):
        if (not moved or tensor.requires_grad) and id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor


def _optimizer_state(part: Part) -> list[dict[str, Any]]:
    """Of every parameter, in the optimizer's order; empty before its first step."""
    if part.optimizer is None:
        return []
    state = part.optimizer.state
    return [
        {
            name: _copy(value) if isinstance(value, Tensor) else value
            for name, value in state[parameter].items()
        }
        if parameter in state
        else {}
        for group in part.optimizer.param_groups
        for parameter in group["params"]
    ]


def _restore_optimizer(optimizer: torch.optim.Optimizer, kept: list[dict[str, Any]]) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter, values in zip(parameters, kept, strict=True):
        now = optimizer.state.pop(parameter, {})
        if not values:
            continue
        for name, value in values.items():
            if isinstance(value, Tensor):
                _local(now[name]).copy_(value)
            else:
                now[name] = value
        optimizer.state[parameter] = now


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def _copy(tensor: Tensor) -> Tensor:
    return _local(tensor).detach().to("cpu", copy=True)
