"""Gradients of a sharded model, and the master weights that the optimizer updates, both in fp32.

Gradients are summed over the ranks, measured and clipped. Master weights and moments are either whole on
every replica or sharded. Sharding is ZeRO's first stage (Rajbhandari et al. 2020): gradients are summed on
the rank that owns the rows, which updates them and sends them to the others. AdamW is elementwise, so the
result is the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from slime.errors import TrainError
from slime.training.megatron.parallel import Axis
from slime.training.megatron.pieces import Cut, Piece, Trained
from slime.training.megatron.pipeline import ShardedModel
from slime.training.megatron.row_shards import add_up, add_up_rows, own_rows, spread_rows

EMBEDDING, HEAD = "embedding.word_embeddings.weight", "output_layer.weight"


class Gradients:
    """The gradients of one rank's shard of a model. All ranks must make the same calls.

    Args:
        args: settings of the optimizer's states; None: no gradients and no master weights are needed.
    """

    def __init__(self, model: ShardedModel, args: Any | None = None) -> None:
        self.parallel, self.weights = model.parallel, model.weights
        tied = model.weights.hf.tie_word_embeddings and model.core.has_head
        self.tied_head = tied and self.parallel.pp.size > 1
        self.all = [
            self._trained(model, name, parameter, args is None)
            for name, parameter in model.core.named_parameters()
            if args is None or parameter.requires_grad
        ]
        shared = args is not None and args.use_distributed_optimizer and self.parallel.copies.size > 1
        on_cpu = args is not None and args.fsdp_cpu_offload
        self.masters = Masters(self._parts(), shared, on_cpu)

    def _trained(self, model: ShardedModel, name: str, parameter: nn.Parameter, frozen: bool) -> Trained:
        entry = self.weights.entries[name]
        cut = entry.dim is not None
        second = self.tied_head and name == HEAD
        whole_norm = model.core.config.sequence_parallel and not cut and entry.kind != "value"
        narrow = parameter.dtype == torch.bfloat16 and not frozen
        trained = Trained(
            name,
            parameter,
            self.parallel.copies_of_experts if entry.kind == "experts" else self.parallel.copies,
            torch.float32 if narrow else parameter.dtype,
            share=0.0 if second else 1.0 if cut else 1.0 / self.parallel.tp.size,
            partial=entry.partial or whole_norm,
        )
        if not frozen:
            trained.watch()
        return trained

    def _parts(self) -> Iterator[tuple[Trained, str, slice, Cut | None]]:
        """Yields parameters with the names and rows of their checkpoint tensors.

        Gate and up projection are separate, and so are sections, since each is sharded separately. The last
        stage's output head is a copy of a tied embedding.
        """
        for each in self.all:
            entry, name = self.weights.entries[each.name], self.weights.global_name(each.name)
            if self.tied_head and each.name == HEAD:
                name = EMBEDDING
            rows = each.parameter.shape[0]
            cut = None if entry.dim is None else Cut(entry.dim, self.weights.axis_of(entry))
            if entry.kind == "gate_up":
                yield each, f"{name}.gate", slice(0, rows // 2), cut
                yield each, f"{name}.up", slice(rows // 2, rows), cut
            elif entry.sections:
                first = 0
                for number, size in enumerate(size for group in entry.sections for size in group):
                    own_rows_of_part = slice(first, first + size // self.parallel.tp.size)
                    yield each, f"{name}.{number}", own_rows_of_part, cut
                    first = own_rows_of_part.stop
            else:
                yield each, name, slice(0, rows), cut

    def clear(self) -> None:
        self.masters.clear()
        for each in self.all:
            each.forget()

    def collect(self) -> None:
        """Sums the gradients of the ranks.

        Every context-parallel rank counts each token, so these sums are divided by the number of those ranks.
        """
        if self.parallel.tp.size > 1:
            add_up([each.gradient for each in self.all if each.partial], self.parallel.tp.group)
        if self.tied_head and (self.parallel.is_first or self.parallel.is_last):
            add_up([each.gradient for each in self.all if each.name in (EMBEDDING, HEAD)], self.parallel.ends)
        self.masters.take_gradients()
        if self.parallel.cp.size > 1:
            for piece in self.masters.pieces:
                _gradient(piece).div_(self.parallel.cp.size)

    def clip(self, loss: float, max_norm: float, where: str) -> float:
        """Returns the gradient norm of the whole model, and clips the gradient to `max_norm` (0: no
        clipping).

        Raises:
            TrainError: loss or gradient is not finite. Every rank sees the same numbers, so all raise or none.
        """
        if not math.isfinite(loss):
            raise TrainError(f"{where}: the loss is {loss}; the step was not applied")
        norm = self._norm()
        if not math.isfinite(norm):
            raise TrainError(f"{where}: the gradient's norm is {norm}; the step was not applied")
        factor = max_norm / (norm + 1e-6)
        if max_norm > 0 and factor < 1:
            for piece in self.masters.pieces:
                _gradient(piece).mul_(factor)
        return norm

    def _norm(self) -> float:
        squares = torch.zeros((), dtype=torch.float64, device=self.all[0].parameter.device)
        for piece in self.masters.pieces:
            share = piece.trained.share / (1 if self.masters.shared else piece.trained.copies.size)
            if share:
                squares += share * torch.linalg.vector_norm(_gradient(piece)).double().square()
        dist.all_reduce(squares)
        return float(squares.sqrt())


def _gradient(piece: Piece) -> Tensor:
    assert piece.gradient is not None
    return piece.gradient


class Masters:
    """The master weights (fp32 weights that the optimizer updates) of one rank. All ranks must make the same
    calls.

    Args:
        parts: for every parameter, the (name, rows, cut) of its checkpoint tensors.
        shared: every replica updates only its own rows, not all.
        on_cpu: keep master weights and moments in CPU memory, and run the optimizer there.
    """

    def __init__(
        self,
        parts: Iterable[tuple[Trained, str, slice, Cut | None]],
        shared: bool = False,
        on_cpu: bool = False,
    ) -> None:
        self.shared, self.on_cpu = shared, on_cpu
        self.pieces = [self._piece(*part) for part in parts]

    def _piece(self, trained: Trained, name: str, rows: slice, cut: Cut | None) -> Piece:
        tensor = trained.parameter.detach()[rows]
        own_slice = own_rows(len(tensor), trained.copies) if self.shared else slice(0, len(tensor))
        own = tensor[own_slice]
        if self.on_cpu or own.dtype != trained.wide:
            own = own.to("cpu" if self.on_cpu else own.device, trained.wide, copy=True)
        return Piece(name, trained, rows, cut, own_slice, nn.Parameter(own))

    @property
    def parameters(self) -> nn.ParameterList:
        """Returns the optimizer's parameters. A rank may have no row of a small parameter."""
        return nn.ParameterList([piece.master for piece in self.pieces if piece.master.numel()])

    def take_gradients(self) -> None:
        """Sums the gradients of the replicas, and keeps the rows that this rank updates."""
        for axis, pieces in self._by_copies():
            whole = [piece.of(piece.trained.gradient) for piece in pieces]
            if self.shared:
                parts = add_up_rows(whole, axis)
                for piece in pieces:
                    piece.trained.forget()
            else:
                parts = whole
                if axis.size > 1:
                    add_up(whole, axis.group)
            for piece, part in zip(pieces, parts, strict=True):
                piece.gradient = part

    def move(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes one optimizer step, then copies the result to the model's weights."""
        for piece in self.pieces:
            assert piece.gradient is not None
            piece.master.grad = piece.gradient.to(piece.master.device)
        optimizer.step()
        self.publish()

    def clear(self) -> None:
        for piece in self.pieces:
            piece.gradient = piece.master.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Copies the master weights to the model's weights."""
        for piece in self.pieces:
            target = piece.of(piece.trained.parameter.detach())[piece.own_rows]
            if target.data_ptr() != piece.master.data_ptr():
                target.copy_(piece.master)
        if self.shared:
            for axis, pieces in self._by_copies():
                spread_rows([piece.of(piece.trained.parameter.detach()) for piece in pieces], axis)

    def _by_copies(self) -> list[tuple[Axis, Sequence[Piece]]]:
        """Groups the pieces by the ranks that have copies of them."""
        axes = {id(piece.trained.copies): piece.trained.copies for piece in self.pieces}
        return [
            (axis, [piece for piece in self.pieces if piece.trained.copies is axis]) for axis in axes.values()
        ]
