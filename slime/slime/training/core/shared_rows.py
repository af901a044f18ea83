"""A distribution with rows divided over ranks: each computes the rows of its own tokens, and all receive the results
of every row.

Only a few numbers a token go from rank to rank. Every rank computes the same losses, over all tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from slime.losses import Distribution

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class _Share(torch.autograd.Function):
    """Rows of all ranks on each. The later layers compute the same on each, so the sum of all gradients of this
    rank's rows is its own one, as often as there are ranks."""

    @staticmethod
    def forward(ctx: Any, own_rows: Tensor, numbers: Tensor, total: int, group: ProcessGroup) -> Tensor:
        ctx.save_for_backward(numbers)
        ctx.ranks = group.size()
        whole = own_rows.new_zeros(total, *own_rows.shape[1:])
        whole[numbers] = own_rows
        dist.all_reduce(whole, group=group)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (numbers,) = ctx.saved_tensors
        return grads[0][numbers] * ctx.ranks, None, None, None


@dataclass(frozen=True)
class OwnRows:
    """The t of the T rows of a pack that belong to this rank.

    Attributes:
        numbers: [t], of the rows. Every row is one rank's of `group`.
        total: T.
    """

    numbers: Tensor
    total: int
    group: ProcessGroup

    def share(self, own_rows: Tensor) -> Tensor:
        """[t, ...] of this rank -> [T, ...] of all, on each. Its gradient counts as often as there are ranks."""
        if self.group.size() == 1:
            return own_rows
        return _Share.apply(own_rows, self.numbers, self.total, self.group)  # type: ignore[no-untyped-call,no-any-return]


class SharedRows:
    """The results are the same on every rank. Every rank must make the same calls.

    Args:
        own: of the rows of this rank.
        hidden: [t, H], what these are made of. of: makes them.
    """

    def __init__(
        self, own: Distribution, rows: OwnRows, hidden: Tensor, of: Callable[[Tensor], Distribution]
    ) -> None:
        self.own, self.rows, self.hidden, self.of = own, rows, hidden, of
        self._asked: tuple[Tensor, Tensor] | None = None

    def log_probs(self, ids: Tensor) -> Tensor:
        """Log-probabilities of `ids` [T] or [T, K], in the same shape. Differentiable."""
        if self._asked is None or self._asked[0] is not ids:  # one in chunks knows the same tensor again
            self._asked = ids, ids[self.rows.numbers]
        return self.rows.share(self.own.log_probs(self._asked[1]))

    def logsumexp(self) -> Tensor:
        """Log-normaliser of the tempered logits, [T]."""
        return self.rows.share(self.own.logsumexp())

    def entropy(self) -> Tensor:
        """Entropy in nats, [T]. Differentiable."""
        return self.rows.share(self.own.entropy())

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Returns the k most likely tokens: (log-probs [T, K] in falling order, ids [T, K])."""
        values, ids = self.own.topk(k)
        return self.rows.share(values), self.rows.share(ids)

    @torch.no_grad()
    def guided(self, plain: SharedRows, strength: float) -> SharedRows:
        """See Distribution; without gradients. Behind another prompt a token may be another rank's, so its hidden state
        comes here."""
        here = plain.rows.share(plain.hidden)[self.rows.numbers]
        return SharedRows(self.own.guided(self.of(here), strength), self.rows, self.hidden, self.of)
