"""Norms of a decoder, computed in fp32 wherever transformers does so."""

from __future__ import annotations

import torch
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn
from torch.nn.functional import silu

from slime.training.core.fused import rms_norm


class Norm(nn.Module):
    """Base of all norms: root mean square, and a weight for each dimension.

    Attributes:
        fused: use a fused kernel (--fused-layers), if the norm has one.
    """

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float, **_: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden_size, dtype=config.params_dtype))
        self.eps, self.fused = eps, config.persist_layer_norm

    def normed(self, hidden: Tensor) -> Tensor:
        """Returns the normalized values, computed in fp32, without the weight."""
        wide = hidden.float()
        return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)


class RMSNorm(Norm):
    """RMS norm (Zhang and Sennrich 2019)."""

    def forward(self, hidden: Tensor) -> Tensor:
        if self.fused:
            return rms_norm(hidden, self.weight, self.eps)
        return self.weight * self.normed(hidden).to(hidden.dtype)


class ZeroCentredRMSNorm(Norm):
    """RMS norm whose stored weight is the difference from 1 (Qwen3.5)."""

    def forward(self, hidden: Tensor) -> Tensor:
        return (self.normed(hidden) * (1 + self.weight.float())).type_as(hidden)


class GatedRMSNorm(Norm):
    """RMS norm whose output is multiplied by the SiLU of a gate (Qwen3.5's linear attention)."""

    def forward(self, hidden: Tensor, gate: Tensor) -> Tensor:
        normed = self.weight * self.normed(hidden).to(hidden.dtype)
        return (normed * silu(gate.float())).to(hidden.dtype)
