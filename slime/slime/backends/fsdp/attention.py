"""Attention over packed sequences: one causal SDPA call a sequence, no mask over the whole pack.

Registered with transformers under `NAME`. The lengths of the pack's sequences travel as the keyword argument
`packed_lengths` from the model's forward to here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from slime.errors import TrainError

NAME = "slime_packed"
UNSUPPORTED = ("softcap", "s_aux", "sinks", "position_bias")


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    packed_lengths: tuple[int, ...] | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """query [1, heads, N, D], key and value [1, kv_heads, N, D] -> [1, N, heads, D].

    Raises:
        TrainError: the model wants an attention that this function does not compute.
    """
    wanted = [name for name in UNSUPPORTED if others.get(name) is not None]
    if wanted or attention_mask is not None:
        raise TrainError(
            f"packed attention does not compute {wanted or 'attention masks'}; use another model"
        )
    lengths = list(packed_lengths or (query.shape[2],))
    grouped = query.shape[1] != key.shape[1]
    outputs = []
    for q, k, v in zip(*(torch.split(x, lengths, dim=2) for x in (query, key, value)), strict=True):
        mask = _window_mask(q.shape[2], sliding_window, q.device)
        outputs.append(
            scaled_dot_product_attention(
                q, k, v, mask, dropout, is_causal=mask is None, scale=scaling, enable_gqa=grouped
            )
        )
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def _window_mask(length: int, window: int | None, device: torch.device) -> Tensor | None:
    """Boolean [length, length] of a causal window, or None where plain causal attention is the same."""
    if window is None or length <= window:
        return None
    positions = torch.arange(length, device=device)
    distance = positions[:, None] - positions[None, :]
    return (distance >= 0) & (distance < window)


AttentionInterface.register(NAME, packed_attention)
