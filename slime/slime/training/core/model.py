"""The interface between a model and the training core, for every backend."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from slime.losses import Distribution
from slime.training.core.packing import PackedBatch

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.model import ModelArguments


class PackModel(Protocol):
    """One rank's share of a model that runs on packs. All ranks must make the same calls."""

    def eval(self) -> Any:
        """Disables the dropout of adapters."""
        ...

    def train(self) -> Any:
        """Enables the dropout of adapters."""
        ...

    def requires_grad_(self, requires_grad: bool) -> Any:
        """Enables or disables gradients of the weights."""
        ...


class TrainedModel(PackModel, Protocol):
    """A causal language model: the policy, its reference or its teacher."""

    @property
    def vocabulary(self) -> int:
        """Returns the size of the vocabulary."""
        ...

    def distribution(self, packed: PackedBatch) -> Distribution:
        """Returns the model's distribution for every target [T] of the pack, at its sample's temperature."""
        ...

    def without_adapters(self) -> AbstractContextManager[None]:
        """Disables the adapters inside the context."""
        ...

    def shapes(self) -> dict[str, torch.Size]:
        """Returns the shapes of this rank's weights by name, as in the model with merged adapters."""
        ...

    def take_over(self, policy: Any) -> None:
        """Copies the weights, with merged adapters, from a model of the same backend and shapes."""
        ...


class ValueModel(PackModel, Protocol):
    """A model with one output number per token: the critic."""

    def values(self, packed: PackedBatch) -> Tensor:
        """Returns fp32 values [T] at the targets of the pack, each predicted before its token."""
        ...


@runtime_checkable
class Pipelined(Protocol):
    """A model that accepts many packs at once, so that its pipeline stages work in parallel."""

    def of_all(self, packs: Sequence[PackedBatch]) -> list[Tensor]:
        """Returns [T] for every pack: log-probs of its targets, or a critic's values."""
        ...


@torch.no_grad()
def log_probs_of(model: TrainedModel, packs: Sequence[PackedBatch]) -> list[Tensor]:
    """Returns log-probs of the targets of every pack, [T] each."""
    if isinstance(model, Pipelined):
        return model.of_all(packs)
    return [model.distribution(packed).log_probs(packed.targets) for packed in packs]


@torch.no_grad()
def values_of_all(model: ValueModel, packs: Sequence[PackedBatch]) -> list[Tensor]:
    """Returns a critic's values of every pack, [T] each."""
    return model.of_all(packs) if isinstance(model, Pipelined) else [model.values(packed) for packed in packs]


def computing_dtype(args: ModelArguments, device_type: str) -> torch.dtype:
    """Returns bf16 on CUDA or with --bf16, else fp32."""
    in_bf16 = args.bf16 or (device_type == "cuda" and not args.fp32)
    return torch.bfloat16 if in_bf16 else torch.float32


def serves_fp32(args: Arguments) -> bool:
    """Returns whether vectors stored in fp32 stay in fp32 when the other weights are bf16.

    An example is decay parameters, whose errors grow exponentially with the length of a sequence. The
    embedded engine has one dtype for all tensors, and training computes as the engine does.
    """
    return args.rollout_backend != "embedded"
