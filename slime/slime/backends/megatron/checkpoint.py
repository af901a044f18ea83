"""What a checkpoint holds of a model in parts: tensors that know where in the whole they belong.

torch writes each part once and can read them back into another division over tensor- and data-parallel ranks and
pipeline stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from slime.backends.fsdp.checkpoint import Part
from slime.backends.megatron.gradients import EMBEDDING, HEAD, Gradients, Trained
from slime.backends.megatron.parallel import Axis
from slime.backends.megatron.weights import WeightMap

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class MegatronPart(Part):
    """One rank's part of a model and, if it is trained, of its optimizer.

    Weights are stored as wide as they are optimized.
    """

    weights: WeightMap | None = None
    gradients: Gradients | None = None

    def tensors(self, with_optimizer: bool) -> dict[str, Any]:
        assert self.gradients is not None
        model: dict[str, Any] = {}
        states: dict[str, Any] = {}
        for each in self.gradients.all:
            model |= self._pieces(each, each.master.detach(), "")
            if with_optimizer:
                known = self._optimizer_state(each)
                states[f"{self._name(each)}.step"] = known["step"]
                for name in MOMENTS:
                    states |= self._pieces(each, known[name], f".{name}")
        return {"model": model, "optimizer": states} if with_optimizer else {"model": model}

    def shapes(self, state: dict[str, Any]) -> dict[str, list[int]]:
        """Of all pipeline stages."""
        assert self.gradients is not None
        axis = self.gradients.parallel.pp
        stages: list[dict[str, list[int]]] = [super().shapes(state)] * axis.size
        if axis.size > 1:
            dist.all_gather_object(stages, stages[axis.rank], group=axis.group)
        return {name: shape for stage in stages for name, shape in stage.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """The tensors were filled in place."""
        assert self.gradients is not None
        self.gradients.publish()

    def _name(self, each: Trained) -> str:
        """Its name in the whole model. The output head of the last stage is a copy of a tied embedding."""
        assert self.weights is not None and self.gradients is not None
        return (
            EMBEDDING
            if self.gradients.tied_head and each.name == HEAD
            else self.weights.global_name(each.name)
        )

    def _optimizer_state(self, each: Trained) -> dict[str, Any]:
        """Of AdamW; one that has made no step gets an empty one to be filled."""
        assert self.optimizer is not None
        known: dict[str, Any] = self.optimizer.state[each.master]
        if not known:
            known["step"] = torch.zeros((), dtype=torch.float32, device=each.master.device)
            known |= {name: torch.zeros_like(each.master) for name in MOMENTS}
        return known

    def _pieces(self, each: Trained, tensor: Tensor, suffix: str) -> dict[str, Tensor]:
        """The tensor under its name. Gate and up projection come apart: each is cut over the ranks for itself."""
        assert self.weights is not None and self.gradients is not None
        entry, name = self.weights.entries[each.name], self._name(each)
        if entry.dim is None:
            return {name + suffix: tensor}
        parts = {name: tensor}
        if entry.kind == "gate_up":
            gate, up = tensor.chunk(2)
            parts = {f"{name}.gate": gate, f"{name}.up": up}
        tp = self.gradients.parallel.tp
        return {part + suffix: _sharded(x, entry.dim, tp) for part, x in parts.items()}


def _sharded(tensor: Tensor, dim: int, axis: Axis) -> Tensor:
    """One rank's part as a part of the whole."""
    if axis.size == 1:
        return tensor
    mesh = DeviceMesh.from_group(axis.group, tensor.device.type)
    return DTensor.from_local(tensor, mesh, [Shard(dim)], run_check=False)
