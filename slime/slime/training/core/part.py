"""Checkpoint part: one trained model and its optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule


@dataclass(frozen=True)
class Part:
    """A trained model and its optimizer.

    `prefix` distinguishes several parts; the policy's is empty. `steps`: optimizer steps, if the part has its own
    count.
    """

    model: Any
    optimizer: torch.optim.Optimizer | None
    prefix: str = ""
    steps: int = 0

    @property
    def moved(self) -> list[Tensor]:
        """Returns the tensors that the optimizer updates: weights, or fp32 copies of them. Empty without an
        optimizer."""
        groups = self.optimizer.param_groups if self.optimizer else []
        return [parameter for group in groups for parameter in group["params"]]

    def publish(self) -> None:
        """Copies the optimizer's values to the model's weights. Every rank must call this. No-op here: they
        are the same."""

    def tensors(self, with_optimizer: bool) -> dict[str, Any]:
        """Returns the tensors that DCP saves or loads in place: "model" and optionally "optimizer". Frozen
        weights are omitted."""
        options = _options(self.model)
        parameters = self.model.named_parameters(remove_duplicate=False)
        frozen = {name for name, parameter in parameters if not parameter.requires_grad}
        tensors = get_model_state_dict(self.model, options=options)  # omits tied weights except for one name
        state: dict[str, Any] = {"model": {name: x for name, x in tensors.items() if name not in frozen}}
        if with_optimizer:
            assert self.optimizer is not None
            state["optimizer"] = get_optimizer_state_dict(self.model, self.optimizer, options=options)
        return state

    def shapes(self, state: dict[str, Any]) -> dict[str, list[int]]:
        """Returns names and shapes of all weights of the model, from this rank's `state`. Every rank must
        call this."""
        return {name: list(tensor.shape) for name, tensor in state["model"].items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Loads the values that DCP has read."""
        options = _options(self.model)
        set_model_state_dict(self.model, state["model"], options=options)
        if "optimizer" in state:
            assert self.optimizer is not None
            set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"], options=options)


def tensors_of(parts: Sequence[Part], stepped: set[str]) -> dict[str, Any]:
    """Returns the tensors that DCP saves or loads in place, with optimizers only for the parts in `stepped`."""
    return {
        part.prefix + name: tensors
        for part in parts
        for name, tensors in part.tensors(part.optimizer is not None and part.prefix in stepped).items()
    }


def _options(model: Any) -> StateDictOptions:
    """Returns the options that exclude frozen weights."""
    return StateDictOptions(
        ignore_frozen_params=True, strict=all(parameter.requires_grad for parameter in model.parameters())
    )


def reshard(model: Any) -> None:
    """Frees the unsharded weights that FSDP keeps after a forward pass without backward; otherwise no-op.

    They have the compute dtype and would be mistaken for the model's weights.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
