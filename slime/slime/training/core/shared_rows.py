"""A distribution whose rows are divided over ranks; all ranks receive all results.

Each rank computes the rows of its own tokens. Ranks exchange only a few numbers per token, and every rank
computes the same losses over all tokens.
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
    """Gathers the rows of all ranks on each rank.

    Later layers compute the same on every rank, so the summed gradient of this rank's rows is its own
    gradient times the number of ranks.
    """

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
    """The t of a pack's T rows that belong to this rank.

    Attributes:
        numbers: [t], indices of the rows. Each of the T rows belongs to one rank of `group`.
        total: T.
    """

    numbers: Tensor
    total: int
    group: ProcessGroup

    def share(self, own_rows: Tensor) -> Tensor:
        """Gathers [t, ...] of each rank to [T, ...] on every rank. Its gradient is multiplied by the number of
        ranks."""
        if self.group.size() == 1:
            return own_rows
        return _Share.apply(own_rows, self.numbers, self.total, self.group)  # type: ignore[no-untyped-call,no-any-return]


class SharedRows:
    """A distribution whose results are equal on every rank. All ranks must make the same calls.

    Args:
        own: distribution of this rank's rows.
        hidden: [t, H], hidden states of these rows.
        of: computes the distribution of hidden states.
    """

    def __init__(
        self, own: Distribution, rows: OwnRows, hidden: Tensor, of: Callable[[Tensor], Distribution]
    ) -> None:
        self.own, self.rows, self.hidden, self.of = own, rows, hidden, of
        self._asked: tuple[Tensor, Tensor] | None = None

    def log_probs(self, ids: Tensor) -> Tensor:
        """Returns log-probabilities of `ids` [T] or [T, K], in the same shape. Differentiable."""
        # a chunked distribution recognizes the same tensor by identity
        if self._asked is None or self._asked[0] is not ids:
            self._asked = ids, ids[self.rows.numbers]
        return self.rows.share(self.own.log_probs(self._asked[1]))

    def logsumexp(self) -> Tensor:
        """Returns the log-normaliser of the tempered logits, [T]."""
        return self.rows.share(self.own.logsumexp())

    def entropy(self) -> Tensor:
        """Returns the entropy in nats, [T]. Differentiable."""
        return self.rows.share(self.own.entropy())

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Returns log-probs [T, K], in descending order, and ids [T, K] of the k most likely tokens."""
        values, ids = self.own.topk(k)
        return self.rows.share(values), self.rows.share(ids)

    @torch.no_grad()
    def guided(self, plain: SharedRows, strength: float) -> SharedRows:
        """See `Distribution.guided`; without gradients.

        After another prompt a token may belong to another rank, so hidden states are exchanged.
        """
        here = plain.rows.share(plain.hidden)[self.rows.numbers]
        return SharedRows(self.own.guided(self.of(here), strength), self.rows, self.hidden, self.of)
