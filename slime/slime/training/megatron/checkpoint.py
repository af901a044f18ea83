"""Checkpoints of a sharded model; each shard has its position in the whole tensor.

torch writes each shard once. It can load shards with other numbers of tensor- and data-parallel ranks and
pipeline stages, whether or not optimizer states are sharded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.utils.dlpack import from_dlpack

from slime.training.core.objects import gather_json
from slime.training.core.part import Part
from slime.training.megatron.gradients import Gradients
from slime.training.megatron.parallel import Axis
from slime.training.megatron.pieces import Piece

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class MegatronPart(Part):
    """One rank's shard of a model and, if it is trained, of its optimizer.

    Weights are stored in the dtype that the optimizer updates.
    """

    gradients: Gradients | None = None

    def publish(self) -> None:
        assert self.gradients is not None
        self.gradients.masters.publish()

    def tensors(self, with_optimizer: bool) -> dict[str, Any]:
        assert self.gradients is not None
        pieces = self.gradients.masters.pieces
        model = {piece.name: self._placed(piece, piece.master.detach()) for piece in pieces}
        if not with_optimizer:
            return {"model": model}
        states: dict[str, Any] = {}
        for piece in pieces:
            known = self._optimizer_state(piece)
            if piece.master.numel():  # a rank without rows of the parameter has no step count for it
                states[f"{piece.name}.step"] = known["step"]
            states |= {f"{piece.name}.{name}": self._placed(piece, known[name]) for name in MOMENTS}
        return {"model": model, "optimizer": states}

    def shapes(self, state: dict[str, Any]) -> dict[str, list[int]]:
        """Returns the shapes of the weights of all pipeline stages."""
        assert self.gradients is not None
        axis = self.gradients.parallel.pp
        stages: list[dict[str, list[int]]] = [super().shapes(state)]
        if axis.size > 1:
            stages = gather_json(stages[0], axis.group)
        return {name: shape for stage in stages for name, shape in stage.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Does nothing: DCP has filled the tensors in place."""
        self.publish()

    def _optimizer_state(self, piece: Piece) -> dict[str, Any]:
        """Returns AdamW's state; before the first step, an uninitialized state for loading."""
        assert self.optimizer is not None
        known: dict[str, Any] = self.optimizer.state[piece.master]
        if not known:
            known["step"] = torch.zeros((), dtype=torch.float32, device=piece.master.device)
            known |= {name: torch.zeros_like(piece.master) for name in MOMENTS}
        return known

    def _placed(self, piece: Piece, tensor: Tensor) -> Tensor:
        """Returns this rank's rows as a shard of the whole tensor."""
        assert self.gradients is not None
        cuts: list[tuple[Axis, int]] = []
        shape = list(piece.of(piece.trained.parameter).shape)
        if piece.cut is not None and piece.cut.axis.size > 1:
            cuts.append((piece.cut.axis, piece.cut.dim))
            shape[piece.cut.dim] *= piece.cut.axis.size
        if self.gradients.masters.shared and piece.trained.copies.size > 1:
            cuts.append((piece.trained.copies, 0))
        if not cuts:
            return tensor
        # torch cannot copy a DTensor that starts inside a storage, as --async-save does
        if tensor.storage_offset():
            tensor = from_dlpack(tensor)  # the same memory, as a separate storage
        mesh = _mesh([axis for axis, _ in cuts], tensor.device.type)
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(
            tensor,
            mesh,
            [Shard(dim) for _, dim in cuts],
            run_check=False,
            shape=torch.Size(shape),
            stride=stride,
        )


def _mesh(axes: list[Axis], device: str) -> DeviceMesh:
    """Returns a mesh of all axes, in which this rank knows only its own groups."""
    if len(axes) == 1:
        return DeviceMesh.from_group(axes[0].group, device)
    cut, copies = axes
    own = cut.ranks[cut.rank]
    ranks = [[copy + other - own for copy in copies.ranks] for other in cut.ranks]
    names = "cut", "copies"
    return DeviceMesh.from_group([cut.group, copies.group], device, mesh=ranks, mesh_dim_names=names)
