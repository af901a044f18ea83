"""The model that the policy is compared with by KL: frozen, or following the policy every so many rollouts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor

from slime.errors import ConfigError
from slime.training.core.checkpoint import Part
from slime.training.core.step import trained_log_probs
from slime.training.fsdp.loading import load_model
from slime.training.fsdp.lora import merged, merged_shapes, without_adapters
from slime.training.fsdp.model import whole_tensors
from slime.training.schedule import MicroBatch
from slime.types import Sample

PREFIX = "reference_"


class Reference:
    """The reference of one rank; every rank makes the same calls.

    Frozen, it is the base of the policy's adapters where that is the same model, so it takes no memory. One that
    moves is part of checkpoints.

    Args:
        policy: the model that is trained.
        first: folder of the weights that the policy started from.

    Raises:
        ConfigError: the reference shall follow a policy of another shape.
    """

    def __init__(self, args: Any, mesh: DeviceMesh, policy: Any, first: str) -> None:
        self.policy, self.interval, self.use_lora = policy, args.ref_update_interval, args.use_lora
        same = Path(args.ref_load).resolve() == Path(first).resolve()
        self.model = policy
        if not (self.use_lora and same and self.interval is None):
            self.model = load_model(args.ref_load, mesh, args, trained=False)
            self.model.requires_grad_(self.interval is not None)  # checkpoints hold what could be trained
        if self.interval is not None:
            self._check_shapes(args.ref_load)

    @property
    def parts(self) -> list[Part]:
        """What a checkpoint holds of it."""
        return [] if self.interval is None else [Part(self.model, None, PREFIX)]

    def log_probs(
        self, micro_batches: Sequence[MicroBatch], samples: Sequence[Sample], device: torch.device
    ) -> dict[int, list[float]]:
        """Log-probs of the trained tokens, by position of the sample."""
        with without_adapters(self.policy) if self.model is self.policy else nullcontext():
            return trained_log_probs(self.model, micro_batches, samples, device)

    def follow(self, rollout_id: int) -> bool:
        """Takes over the policy's weights if `rollout_id`, just trained, ends an interval. Tells whether it did."""
        if self.interval is None or (rollout_id + 1) % self.interval:
            return False
        targets = self.model.state_dict()
        with torch.no_grad():
            for name, tensor in self._policy_weights():
                _assign(targets[name], tensor)
        return True

    def _policy_weights(self) -> Iterable[tuple[str, Tensor]]:
        weights = self.policy.state_dict()
        return merged(self.policy, whole_tensors(weights)) if self.use_lora else weights.items()

    def _check_shapes(self, folder: str) -> None:
        mine = {name: tensor.shape for name, tensor in self.model.state_dict().items()}
        shapes = merged_shapes(self.policy)
        if mine != shapes:
            raise ConfigError(
                f"--ref-update-interval: the model in {folder} has another shape than the policy and cannot "
                "take over its weights"
            )


def _assign(target: Tensor, tensor: Tensor) -> None:
    """Writes a tensor, whole or sharded alike, into a tensor of the reference."""
    if isinstance(target, DTensor) and not isinstance(tensor, DTensor):
        tensor = distribute_tensor(
            tensor.to(target.dtype), target.device_mesh, target.placements, src_data_rank=None
        )
    target.copy_(tensor)
