"""A distribution that computes its logits in chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from slime.losses.dense import DenseDistribution, exact
from slime.losses.formula import Distribution


class ChunkedDistribution:
    """Distributions over a vocabulary, from hidden states, with at most `chunk` rows of logits in memory.

    Logits are recomputed in the backward pass: less memory, more time. Log-probs of the most recent ids are
    cached, because a loss and its metrics use the same ones. So is the entropy, without gradient, at the
    first computation with gradients, because it is reported with every loss.

    Args:
        hidden: [T, H].
        project: the output head, [n, H] -> logits [n, V].
        temperatures: [T].
        chunk: rows, 1 or more.
        of: maps logits [n, V] and temperatures [n] to their distribution.
    """

    def __init__(
        self,
        hidden: Tensor,
        project: Callable[[Tensor], Tensor],
        temperatures: Tensor,
        chunk: int,
        of: Callable[[Tensor, Tensor], Distribution] = DenseDistribution,
    ) -> None:
        self.hidden, self.project, self.of = hidden, project, of
        self.temperatures, self.chunk = temperatures, chunk
        self._known: tuple[Tensor, bool, Tensor] | None = None
        self._entropy: Tensor | None = None

    def log_probs(self, ids: Tensor) -> Tensor:
        """Returns log-probabilities of `ids` [T] or [T, K], in the same shape. Differentiable."""
        wants_grad = torch.is_grad_enabled()
        if self._known is not None:
            known, differentiable, values = self._known
            if known is ids and (differentiable or not wants_grad):
                return values
        if wants_grad and self._entropy is None:
            pairs = self._each(_log_probs_and_entropy, ids)
            log_probs, self._entropy = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        else:
            log_probs = torch.cat(self._each(lambda dist, part: dist.log_probs(part), ids))
        self._known = ids, wants_grad, log_probs
        return log_probs

    def logsumexp(self) -> Tensor:
        """Returns the log-normaliser of the tempered logits, [T]."""
        return torch.cat(self._each(lambda dist, _: dist.logsumexp(), self.temperatures))

    def entropy(self) -> Tensor:
        """Returns the entropy in nats, [T]. Differentiable."""
        if self._entropy is not None and not torch.is_grad_enabled():
            return self._entropy
        return torch.cat(self._each(lambda dist, _: dist.entropy(), self.temperatures))

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Returns log-probs [T, K], in descending order, and ids [T, K] of the k most likely tokens."""
        values, ids = zip(*self._each(lambda dist, _: dist.topk(k), self.temperatures), strict=True)
        return torch.cat(values), torch.cat(ids)

    def guided(self, plain: ChunkedDistribution, strength: float) -> ChunkedDistribution:
        """Applies guidance, see `Distribution.guided`; two rows of logits are in memory for each row of a
        chunk."""
        width, project = self.hidden.shape[-1], self.project

        def mixed(both: Tensor) -> Tensor:
            logits = project(both[:, :width]), project(both[:, width:])
            hinted, of_plain = (x.to(exact(x.dtype)) for x in logits)
            return torch.lerp(of_plain, hinted, strength)

        both = torch.cat([self.hidden, plain.hidden], -1)
        return ChunkedDistribution(both, mixed, self.temperatures, self.chunk, self.of)

    def _each(self, compute: Callable[[Distribution, Tensor], Any], along: Tensor) -> list[Any]:
        """Returns results of `compute` for the rows of every chunk and the same rows of `along`."""

        def rows(hidden: Tensor, temperatures: Tensor, part: Tensor) -> Any:
            return compute(self.of(self.project(hidden), temperatures), part)

        parts = (torch.split(x, self.chunk) for x in (self.hidden, self.temperatures, along))
        return [checkpoint(rows, *part, use_reentrant=False) for part in zip(*parts, strict=True)]


def _log_probs_and_entropy(dist: Distribution, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the entropy last, so that the recomputation for gradients stops before it."""
    log_probs = dist.log_probs(ids)
    with torch.no_grad():
        return log_probs, dist.entropy()
