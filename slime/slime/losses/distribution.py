"""Next-token distributions as the losses see them: gather, normaliser, entropy, top-k.

A loss never touches logits, so the same loss works on a dense distribution and on one whose vocabulary is
sharded over ranks. All arithmetic is fp32 or better, whatever the dtype of the logits.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Distribution(Protocol):
    """One categorical distribution for each of T positions, at the sampling temperature of its token."""

    def log_probs(self, ids: Tensor) -> Tensor:
        """Log-probabilities of `ids` [T] or [T, K], in the same shape. Differentiable."""
        ...

    def logsumexp(self) -> Tensor:
        """Log-normaliser of the tempered logits, [T]."""
        ...

    def entropy(self) -> Tensor:
        """Entropy in nats, [T]. Differentiable."""
        ...

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """The k most likely tokens: (log-probs [T, K] in falling order, ids [T, K])."""
        ...

    def guided(self, plain: Any, strength: float) -> Distribution:
        """What a hint changes in the distribution, `strength` times: classifier-free guidance (Ho and Salimans 2022,
        arXiv 2207.12598; of language models Sanchez et al. 2023, arXiv 2306.17806).

        log p = strength log p(. | hinted prompt) - (strength - 1) log p(. | plain prompt), normalised. At 1, and where
        both prompts are the same, it is the hinted distribution, which is `self`.

        Args:
            plain: of the same tokens at the same temperatures, by the same model, and so of the same kind.
            strength: 1 or more.
        """
        ...


class DenseDistribution:
    """Distribution over a whole vocabulary that is held in one tensor.

    Args:
        logits: [T, V], any floating dtype; computed in fp32 (float64 stays float64).
        temperature: one number, or [T] for a value per position; greater than 0.
    """

    def __init__(self, logits: Tensor, temperature: float | Tensor = 1.0) -> None:
        if logits.dim() != 2:
            raise ValueError(f"logits must have shape [T, V], got {list(logits.shape)}")
        scaled = logits if logits.dtype == torch.float64 else logits.float()
        if isinstance(temperature, Tensor):
            scaled = scaled / temperature.to(scaled.dtype).reshape(-1, 1)
        elif temperature != 1.0:
            scaled = scaled / temperature
        self.logits = scaled
        self._logsumexp: Tensor | None = None

    def logsumexp(self) -> Tensor:
        cached = self._logsumexp
        wants_grad = torch.is_grad_enabled() and self.logits.requires_grad
        if cached is None or (wants_grad and not cached.requires_grad):
            cached = self._logsumexp = torch.logsumexp(self.logits, dim=-1)
        return cached

    def log_probs(self, ids: Tensor) -> Tensor:
        columns = ids if ids.dim() == 2 else ids.unsqueeze(-1)
        gathered = self.logits.gather(-1, columns) - self.logsumexp().unsqueeze(-1)
        return gathered if ids.dim() == 2 else gathered.squeeze(-1)

    def entropy(self) -> Tensor:
        log_probs = self.logits - self.logsumexp().unsqueeze(-1)
        negative: Tensor = torch.linalg.vecdot(log_probs.exp(), log_probs)
        return -negative

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        values, ids = self.logits.topk(k, dim=-1)
        return values - self.logsumexp().unsqueeze(-1), ids

    def guided(self, plain: DenseDistribution, strength: float) -> DenseDistribution:
        """See Distribution."""
        return DenseDistribution(torch.lerp(plain.logits, self.logits, strength))
