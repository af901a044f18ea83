"""A distribution with all logits in one tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK_CPU, BLOCK_GPU = 2**18, 2**26
"""Number of elements computed in fp32 at a time: on a CPU as many as fit into its cache, on a GPU 256 MB."""


class DenseDistribution:
    """Distribution over a whole vocabulary, stored in one tensor.

    Logits keep their dtype; a few rows at a time are computed in fp32, also in the backward pass. A loss on
    log-probs thus needs memory only for a bf16 tensor of logits and one of its gradient.

    Args:
        logits: [T, V], any floating dtype; computed in fp32 (float64 stays float64).
        temperature: one number, or [T] for a value per position; greater than 0.
    """

    def __init__(self, logits: Tensor, temperature: float | Tensor = 1.0) -> None:
        if logits.dim() != 2:
            raise ValueError(f"logits must have shape [T, V], got {list(logits.shape)}")
        if isinstance(temperature, Tensor):
            each = temperature.to(logits.device, exact(logits.dtype)).reshape(-1, 1)
            temperature = each.expand(len(logits), 1)
        self._raw, self._temperature = logits, temperature
        self._logsumexp: Tensor | None = None

    @property
    def logits(self) -> Tensor:
        """Returns tempered logits [T, V] in fp32. Differentiable."""
        return tempered(self._raw, self._temperature)

    def logsumexp(self) -> Tensor:
        """See `Distribution`. Differentiable, but needs memory for fp32 logits."""
        if torch.is_grad_enabled() and self._raw.requires_grad:
            return torch.logsumexp(self.logits, dim=-1)
        return self._normaliser()

    def log_probs(self, ids: Tensor) -> Tensor:
        columns = ids if ids.dim() == 2 else ids.unsqueeze(-1)
        log_probs: Tensor = _LogProbs.apply(self._raw, self._temperature, columns, self._normaliser())  # type: ignore[no-untyped-call]
        return log_probs if ids.dim() == 2 else log_probs.squeeze(-1)

    def entropy(self) -> Tensor:
        if torch.is_grad_enabled() and self._raw.requires_grad:
            logits = self.logits
            return _entropy(logits, torch.logsumexp(logits, dim=-1))
        normaliser = self._normaliser()
        return torch.cat([_entropy(block, normaliser[rows]) for rows, block in self._blocks()])

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """See `Distribution`. Without gradients."""
        with torch.no_grad():
            best = [block.topk(k, dim=-1) for _, block in self._blocks()]
            values, ids = (torch.cat(parts) for parts in zip(*best, strict=True))
            return values - self._normaliser().unsqueeze(-1), ids

    def guided(self, plain: DenseDistribution, strength: float) -> DenseDistribution:
        """See `Distribution`."""
        return DenseDistribution(torch.lerp(plain.logits, self.logits, strength))

    def _normaliser(self) -> Tensor:
        """Returns the log-normaliser [T], without gradient; computed once."""
        if self._logsumexp is None:
            with torch.no_grad():
                parts = [torch.logsumexp(block, dim=-1) for _, block in self._blocks()]
                self._logsumexp = torch.cat(parts)
        return self._logsumexp

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        return blocks(self._raw, self._temperature)


class _LogProbs(torch.autograd.Function):
    """Maps (logits [T, V], temperature, ids [T, K], normaliser [T]) to log-probs [T, K]."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, temperature: float | Tensor, ids: Tensor, normaliser: Tensor
    ) -> Tensor:
        ctx.save_for_backward(logits, ids, normaliser)
        ctx.temperature = temperature
        chosen: Tensor = logits.gather(-1, ids)
        return tempered(chosen, temperature) - normaliser.unsqueeze(-1)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (logits, ids, normaliser), (grad,) = ctx.saved_tensors, grads
        gradient, mass = torch.empty_like(logits), -grad.sum(-1, keepdim=True)
        for rows, block in blocks(logits, ctx.temperature):
            probabilities = block.sub(normaliser[rows].unsqueeze(-1)).exp_()
            block = probabilities.mul_(mass[rows]).scatter_add_(-1, ids[rows], grad[rows])
            gradient[rows] = tempered(block, ctx.temperature, rows)
        return gradient, None, None, None


def exact(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype for computing with logits of `dtype`."""
    return dtype if dtype == torch.float64 else torch.float32


def tempered(values: Tensor, temperature: float | Tensor, rows: slice = slice(None)) -> Tensor:
    """Returns `values` of these rows in fp32, divided by the temperature: a number, or [T, 1]."""
    values = values.to(exact(values.dtype))
    if isinstance(temperature, Tensor):
        return values / temperature[rows]
    return values if temperature == 1.0 else values / temperature


def blocks(logits: Tensor, temperature: float | Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yields blocks of rows of [T, V]: their slice, and their tempered logits in fp32. At least one block."""
    most = BLOCK_CPU if logits.device.type == "cpu" else BLOCK_GPU
    size = max(1, most // max(1, logits.shape[-1]))
    for start in range(0, max(1, len(logits)), size):
        rows = slice(start, start + size)
        yield rows, tempered(logits[rows], temperature, rows)


def _entropy(logits: Tensor, normaliser: Tensor) -> Tensor:
    log_probs = logits - normaliser.unsqueeze(-1)
    negative: Tensor = torch.linalg.vecdot(log_probs.exp(), log_probs)
    return -negative
