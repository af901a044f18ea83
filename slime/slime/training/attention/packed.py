"""Attention over packed sequences: one causal SDPA call a sequence, no mask over the whole pack.

Registered with transformers under `NAME`. The layout of the pack travels as the keyword argument `packed_layout` from
the model's forward to here. It needs no FlashAttention and runs wherever torch does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from slime.errors import TrainError
from slime.training.core.packing import Layout

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
    packed_layout: Layout | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """query [1, heads, N, D], key and value [1, kv_heads, N, D] -> [1, N, heads, D].

    Raises:
        TrainError: the model wants an attention that this function does not compute.
    """
    layout = layout_of(query, packed_layout, attention_mask, others)
    how = {"dropout_p": dropout, "scale": scaling}
    parts = (torch.split(x, [n for run in layout for n in run], dim=2) for x in (query, key, value))
    pieces = zip(*parts, strict=True)
    outputs = []
    for run in layout:
        q, trunk_k, trunk_v = next(pieces)
        outputs.append(_attend(q, trunk_k, trunk_v, 0, sliding_window, how))
        for _ in run[1:]:
            q, k, v = next(pieces)
            k, v = torch.cat([trunk_k, k], dim=2), torch.cat([trunk_v, v], dim=2)
            outputs.append(_attend(q, k, v, run[0], sliding_window, how))
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def layout_of(
    query: Tensor, packed: Layout | None, attention_mask: Tensor | None, others: dict[str, Any]
) -> Layout:
    """The layout of queries [1, heads, N, D]; without one they are one sequence. Raises TrainError where a model asks
    for more than causal attention with a window."""
    wanted = [name for name in UNSUPPORTED if others.get(name) is not None]
    if wanted or attention_mask is not None:
        raise TrainError(
            f"packed attention does not compute {wanted or 'attention masks'}; use another model"
        )
    return packed or ((query.shape[2],),)


def _attend(q: Tensor, k: Tensor, v: Tensor, before: int, window: int | None, how: dict[str, Any]) -> Tensor:
    """Causal attention of queries that follow on `before` keys."""
    mask = _mask(q.shape[2], before, window, q.device)
    fewer = q.shape[1] != k.shape[1]
    if fewer and repeats_heads(q.device, q.dtype, mask is not None):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        fewer = False
    return scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=fewer, **how)


def repeats_heads(device: torch.device, dtype: torch.dtype, masked: bool) -> bool:
    """Whether keys and values get as many heads as queries before torch computes.

    On a GPU only FlashAttention takes fewer, which has neither masks nor fp32; the other kernel that takes them makes the
    whole matrix of scores.
    """
    return device.type == "cuda" and (masked or dtype not in (torch.bfloat16, torch.float16))


def _mask(length: int, before: int, window: int | None, device: torch.device) -> Tensor | None:
    """Boolean [length, before + length], or None where plain causal attention is the same."""
    if window is not None and before + length <= window:
        window = None
    if window is None and before == 0:
        return None
    queries = torch.arange(before, before + length, device=device)
    distance = queries[:, None] - torch.arange(before + length, device=device)[None, :]
    return (distance >= 0) if window is None else (distance >= 0) & (distance < window)


AttentionInterface.register(NAME, packed_attention)
