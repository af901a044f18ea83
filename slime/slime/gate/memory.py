"""The last live state of one trainer rank, in memory: weights, optimizer, random state, counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, finalize

import torch
from torch import Tensor

from slime.training.core.checkpoint import random_state, restore_random_state
from slime.training.core.host_copies import HostCopies, local_part, wait_for_copies
from slime.training.core.part import reshard

if TYPE_CHECKING:
    from slime.training.core.part import Part
    from slime.training.trainer import Backend


SPARE: WeakKeyDictionary[Backend, list[HostCopies]] = WeakKeyDictionary()
"""Memory of discarded states, for reuse."""


class KeptState:
    """A CPU copy of all state that training changes, as large as this rank's weights and optimizer states.

    Its memory is reused, so that two copies alternate.
    """

    def __init__(self, trainer: Backend) -> None:
        spare = SPARE.setdefault(trainer, [])
        copies = spare.pop() if spare else HostCopies()
        finalize(self, spare.append, copies).atexit = False
        weights = [list(_weights(part)) for part in trainer.parts]
        states = [_optimizer_state(part) for part in trainer.parts]
        taken = iter(copies.take([*_all_of(weights), *_tensors(states)]))
        self.weights = [[next(taken) for _ in part] for part in weights]
        self.optimizers = [[_with(state, taken) for state in part] for part in states]
        self.random = random_state()
        self.global_step, self.version = trainer.global_step, trainer.version
        self.elsewhere = trainer.save_external_state()
        self.critic_steps = trainer.critic.steps if trainer.critic else 0

    @torch.no_grad()
    def restore(self, trainer: Backend) -> None:
        """Restores the rank's state exactly; drops gradients."""
        for part, weights, optimizer in zip(trainer.parts, self.weights, self.optimizers, strict=True):
            for tensor, kept in zip(_weights(part), weights, strict=True):
                local_part(tensor).copy_(kept, non_blocking=True)
            if part.optimizer is not None:
                _restore_optimizer(part.optimizer, optimizer)
                part.optimizer.zero_grad(set_to_none=True)
        wait_for_copies()
        trainer.restore_external_state(self.elsewhere)
        restore_random_state(self.random)
        trainer.global_step, trainer.version = self.global_step, self.version
        if trainer.critic is not None:
            trainer.critic.steps = self.critic_steps

    @torch.no_grad()
    def shrink(self, trainer: Backend, share: float) -> None:
        """Moves every trained weight of the policy to kept + `share` * (current - kept), computed at least in
        fp32.

        Every rank must call this. Moments, counters, random state and the critic are unchanged.
        """
        part = trainer.parts[0]
        moved = {id(tensor) for tensor in part.moved}
        for tensor, kept in zip(_weights(part), self.weights[0], strict=True):
            if id(tensor) in moved:
                now = local_part(tensor)
                wide = torch.promote_types(now.dtype, torch.float32)
                now.copy_(torch.lerp(kept.to(now.device, wide), now.to(wide), share))
        part.publish()
        if trainer.reference is not None:
            trainer.reference.follow_again()


def _weights(part: Part) -> Iterator[Tensor]:
    """Yields the model's weights, and the optimizer's copies if these are separate; each once.

    Frozen weights are omitted.
    """
    reshard(part.model)
    seen: set[int] = set()
    moved = part.moved
    parameters = part.model.parameters() if moved else (*part.model.parameters(), *part.model.buffers())
    for tensor in (*parameters, *moved):
        if (not moved or tensor.requires_grad) and id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor


def _optimizer_state(part: Part) -> list[dict[str, Any]]:
    """Returns the optimizer's state of every parameter, in order; empty before its first step."""
    if part.optimizer is None:
        return []
    state = part.optimizer.state
    return [state.get(parameter, {}) for parameter in part.moved]


def _all_of(parts: list[list[Tensor]]) -> Iterator[Tensor]:
    return (tensor for part in parts for tensor in part)


def _tensors(parts: list[list[dict[str, Any]]]) -> Iterator[Tensor]:
    return (
        value for part in parts for state in part for value in state.values() if isinstance(value, Tensor)
    )


def _with(state: dict[str, Any], copies: Iterator[Tensor]) -> dict[str, Any]:
    """Returns the state of one parameter, with the next copies as its tensors."""
    return {name: next(copies) if isinstance(value, Tensor) else value for name, value in state.items()}


def _restore_optimizer(optimizer: torch.optim.Optimizer, kept: list[dict[str, Any]]) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter, values in zip(parameters, kept, strict=True):
        now = optimizer.state.pop(parameter, {})
        if not values:
            continue
        for name, value in values.items():
            if isinstance(value, Tensor):
                local_part(now[name]).copy_(value, non_blocking=True)
            else:
                now[name] = value
        optimizer.state[parameter] = now
