"""What the optimizer moves: weights in fp32 and their moments, whole on every copy of the model or shared out.

Sharing them out is ZeRO's first stage (Rajbhandari et al. 2020): gradients are added up to the rank that has the rows,
which moves them and tells the others. AdamW looks at each number alone, so the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from slime.training.megatron.parallel import Axis
from slime.training.megatron.pieces import Cut, Piece, Trained
from slime.training.megatron.row_shards import add_up, add_up_rows, own_rows, spread_rows


class Masters:
    """All pieces of one rank. Every rank makes the same calls.

    Args:
        parts: of every parameter in checkpoints, (name, rows, cut).
        shared: every copy of the model moves rows of its own, not all of them.
        apart: keep masters and moments in CPU memory whatever computes, and step there.
    """

    def __init__(
        self,
        parts: Iterable[tuple[Trained, str, slice, Cut | None]],
        shared: bool = False,
        apart: bool = False,
    ) -> None:
        self.shared, self.apart = shared, apart
        self.pieces = [self._piece(*part) for part in parts]

    def _piece(self, trained: Trained, name: str, rows: slice, cut: Cut | None) -> Piece:
        found = trained.parameter.detach()[rows]
        mine = own_rows(len(found), trained.copies) if self.shared else slice(0, len(found))
        own = found[mine]
        if self.apart or own.dtype != trained.wide:
            own = own.to("cpu" if self.apart else own.device, trained.wide, copy=True)
        return Piece(name, trained, rows, cut, mine, nn.Parameter(own))

    @property
    def parameters(self) -> nn.ParameterList:
        """For the optimizer; a rank may have no row of a small one."""
        return nn.ParameterList([piece.master for piece in self.pieces if piece.master.numel()])

    def take_gradients(self) -> None:
        """Adds up the gradients of the copies of the model, and keeps what this rank moves."""
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
        """One step by the gradients; afterwards what it moved is what computes."""
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
        """What the optimizer has moved becomes what computes."""
        for piece in self.pieces:
            target = piece.of(piece.trained.parameter.detach())[piece.mine]
            if target.data_ptr() != piece.master.data_ptr():
                target.copy_(piece.master)
        if self.shared:
            for axis, pieces in self._by_copies():
                spread_rows([piece.of(piece.trained.parameter.detach()) for piece in pieces], axis)

    def _by_copies(self) -> list[tuple[Axis, Sequence[Piece]]]:
        """The pieces that the same ranks have copies of."""
        axes = {id(piece.trained.copies): piece.trained.copies for piece in self.pieces}
        return [
            (axis, [piece for piece in self.pieces if piece.trained.copies is axis]) for axis in axes.values()
        ]
