"""The interface of a model for the training core, for every backend."""

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
    """One rank's part of a model that runs on packs. Every rank makes the same calls."""

    def eval(self) -> Any:
        """Switches the dropout of adapters off."""
        ...

    def train(self) -> Any:
        """Switches the dropout of adapters on."""
        ...

    def requires_grad_(self, requires_grad: bool) -> Any:
        """Returns whether its weights can be trained."""
        ...


class TrainedModel(PackModel, Protocol):
    """A causal language model: the policy, its reference or its teacher."""

    @property
    def vocabulary(self) -> int:
        """Returns the size of the vocabulary."""
        ...

    def distribution(self, packed: PackedBatch) -> Distribution:
        """Returns the model's distribution of every target [T] of the pack, at the temperature of its sample."""
        ...

    def without_adapters(self) -> AbstractContextManager[None]:
        """Inside, the model computes what its base computes."""
        ...

    def shapes(self) -> dict[str, torch.Size]:
        """Returns the shapes of this rank's weights by name, as they are with adapters merged."""
        ...

    def take_over(self, policy: Any) -> None:
        """Copies the weights of a model of the same backend and the same shapes, adapters merged."""
        ...


class ValueModel(PackModel, Protocol):
    """A model with one number for each token: the critic."""

    def values(self, packed: PackedBatch) -> Tensor:
        """fp32 values [T] at the targets of the pack, before each of them."""
        ...


@runtime_checkable
class Pipelined(Protocol):
    """A model that takes many packs at once, so that its stages work at the same time."""

    def of_all(self, packs: Sequence[PackedBatch]) -> list[Tensor]:
        """[T] of every pack: log-probs of its targets, or a critic's values."""
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
    """bf16 on CUDA and with --bf16, else fp32."""
    in_bf16 = args.bf16 or (device_type == "cuda" and not args.fp32)
    return torch.bfloat16 if in_bf16 else torch.float32


def serves_fp32(args: Arguments) -> bool:
    """Returns whether vectors that the folder stores in fp32 (decays, which are taken to the power of a sequence's
    length) stay in fp32 among bf16 ones. The embedded engine holds all tensors in one dtype, and training computes as
    the engine does."""
    return args.rollout_backend != "embedded"
