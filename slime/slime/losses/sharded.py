"""A distribution with a vocabulary sharded over ranks: every rank has some columns of the logits.

Results are equal on every rank of the group, and each rank's gradient is that of its own columns. Every rank
of the group must make the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from slime.losses.dense import exact, tempered

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class _Sum(torch.autograd.Function):
    """Sums the ranks' parts. Later layers compute the same on every rank, so a part's gradient is that of the sum."""

    @staticmethod
    def forward(ctx: object, part: Tensor, group: ProcessGroup) -> Tensor:
        total = part.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _Spread(torch.autograd.Function):
    """Passes a value to the ranks' columns; its gradient is the sum over the ranks."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        total = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None


class ShardedDistribution:
    """Distribution over a vocabulary of which this rank holds the columns from `first` on.

    Args:
        logits: [T, columns of this rank], any floating dtype; computed in fp32 (float64 stays float64).
        temperatures: [T], greater than 0.
        first: id of the first column.
        group: the ranks that hold the whole vocabulary together.
    """

    def __init__(self, logits: Tensor, temperatures: Tensor, first: int, group: ProcessGroup) -> None:
        self.logits = tempered(logits, temperatures.to(exact(logits.dtype)).reshape(-1, 1))
        self.first, self.group = first, group
        self._logsumexp: Tensor | None = None

    def log_probs(self, ids: Tensor) -> Tensor:
        """Log-probabilities of `ids` [T] or [T, K], in the same shape. Differentiable."""
        columns = (ids if ids.dim() == 2 else ids.unsqueeze(-1)) - self.first
        own = (columns >= 0) & (columns < self.logits.shape[1])
        own_logits = self.logits.gather(-1, columns.where(own, 0)).masked_fill(~own, 0.0)
        gathered = self._sum(own_logits) - self.logsumexp().unsqueeze(-1)
        return gathered if ids.dim() == 2 else gathered.squeeze(-1)

    def logsumexp(self) -> Tensor:
        """Log-normaliser of the tempered logits, [T]."""
        cached = self._logsumexp
        wants_grad = torch.is_grad_enabled() and self.logits.requires_grad
        if cached is None or (wants_grad and not cached.requires_grad):
            highest = self.logits.detach().amax(-1)
            dist.all_reduce(highest, dist.ReduceOp.MAX, group=self.group)
            mass = self._sum((self.logits - highest.unsqueeze(-1)).exp().sum(-1))
            cached = self._logsumexp = mass.log() + highest
        return cached

    def entropy(self) -> Tensor:
        """Entropy in nats, [T]. Differentiable."""
        spread: Tensor = _Spread.apply(self.logsumexp(), self.group)  # type: ignore[no-untyped-call]
        log_probs = self.logits - spread.unsqueeze(-1)
        return -self._sum(torch.linalg.vecdot(log_probs.exp(), log_probs))

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Returns the k most likely tokens: (log-probs [T, K] in falling order, ids [T, K])."""
        values, ids = self.logits.detach().topk(min(k, self.logits.shape[1]), dim=-1)
        widths = torch.tensor([values.shape[1]], device=values.device)
        dist.all_reduce(widths, dist.ReduceOp.MAX, group=self.group)
        missing = int(widths) - values.shape[1]
        values = torch.nn.functional.pad(values, (0, missing), value=-torch.inf).contiguous()
        ids = torch.nn.functional.pad(ids + self.first, (0, missing)).contiguous()
        ranks = range(dist.get_world_size(self.group))
        parts, names = [torch.empty_like(values) for _ in ranks], [torch.empty_like(ids) for _ in ranks]
        dist.all_gather(parts, values, group=self.group)
        dist.all_gather(names, ids, group=self.group)
        chosen = torch.cat(parts, -1).topk(k, dim=-1)[1]
        best = torch.cat(names, -1).gather(-1, chosen)
        return self.log_probs(best), best

    def guided(self, plain: ShardedDistribution, strength: float) -> ShardedDistribution:
        """See Distribution."""
        logits = torch.lerp(plain.logits, self.logits, strength)
        return ShardedDistribution(logits, torch.ones_like(logits[:, 0]), self.first, self.group)

    def _sum(self, part: Tensor) -> Tensor:
        total: Tensor = _Sum.apply(part, self.group)  # type: ignore[no-untyped-call]
        return total
