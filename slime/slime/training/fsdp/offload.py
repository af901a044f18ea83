"""Moves models and optimizer states to CPU memory and back, to free the GPU for others.

Parts that FSDP itself keeps on the CPU (--fsdp-cpu-offload) are not moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from slime.training.core.host_copies import HostCopies, wait_for_copies
from slime.training.core.part import Part, reshard

COPIES: WeakKeyDictionary[nn.Module, HostCopies] = WeakKeyDictionary()
"""Host copies of each model and its optimizer states; every offload reuses the memory."""


def to_cpu(parts: Sequence[Part]) -> None:
    """Moves models and their optimizer states from the GPU to CPU memory."""
    for part in parts:
        if not _is_on_cpu(part.model):
            _offload_part(part)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def to_device(parts: Sequence[Part], device: torch.device) -> None:
    """Moves models and their optimizer states back to the GPU."""
    for part in parts:
        if not _is_on_cpu(part.model):
            part.model.to(device, non_blocking=True)
            for state, name, value in _states(part):
                state[name] = value.to(device, non_blocking=True)
    wait_for_copies()


def _is_on_cpu(model: Any) -> bool:
    """Returns whether FSDP itself moves the model's weights between CPU and GPU."""
    return bool(getattr(model, "offloads", False))


def _offload_part(part: Part) -> None:
    reshard(part.model)
    sharded = [p for p in part.model.parameters() if isinstance(p, DTensor)]
    states = list(_states(part))
    copies = COPIES.setdefault(part.model, HostCopies()).take([*sharded, *(value for *_, value in states)])
    of = {id(parameter): copy for parameter, copy in zip(sharded, copies, strict=False)}

    def on_cpu(tensor: Tensor) -> Tensor:
        return _like(tensor, of[id(tensor)]) if id(tensor) in of else tensor.to("cpu")

    part.model._apply(on_cpu)
    for (state, name, value), copy in zip(states, copies[len(sharded) :], strict=True):
        state[name] = _like(value, copy)


def _like(tensor: Tensor, part: Tensor) -> Tensor:
    """Returns a tensor like `tensor` with `part` as this rank's shard.

    DTensor's own functions would move the shard to the mesh's device.
    """
    if not isinstance(tensor, DTensor):
        return part
    return DTensor(part, tensor._spec, requires_grad=tensor.requires_grad)  # type: ignore[no-untyped-call]


def _states(part: Part) -> Iterator[tuple[dict[str, Any], str, Tensor]]:
    """Yields optimizer states that are as large as their parameters, as (dictionary, key, tensor)."""
    for state in part.optimizer.state.values() if part.optimizer else ():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.dim():
                yield state, name, value
