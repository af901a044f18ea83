"""Attention over packed sequences by one FlashAttention call for the whole pack.

torch brings such a kernel for GPUs since Ampere, in 16 bits; the flash-attn package has the same one.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from slime.training.attention.packed import layout_of, packed_attention
from slime.training.core.packing import Layout
from slime.utils.logging import event

logger = logging.getLogger(__name__)

LONGEST_HEAD, HEAD_UNIT = 256, 8
"""Numbers of a head: the most that the kernel takes, and what their count must divide by."""
AMPERE = (8, 0)


def varlen_attention(
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
    """query [1, heads, N, D], key and value [1, kv_heads, N, D] -> [1, N, heads, D]; 16 bits on CUDA."""
    layout = layout_of(query, packed_layout, attention_mask, others)
    q, k, v = rows(query, key, value, layout)
    queries, keys, _order = varlen_layout(layout, query.device)
    output = varlen_attn(
        q,
        k,
        v,
        queries,
        keys,
        *longest(layout),
        scale=scaling,
        window_size=(-1 if sliding_window is None else sliding_window - 1, 0),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(output, Tensor)
    return output.unsqueeze(0), None


def best_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **how: Any
) -> tuple[Tensor, None]:
    """torch's kernel where it takes the model's heads on this device, else one call a sequence. Shapes as above."""
    fits = takes_varlen(query.device, query.dtype, query.shape[-1])
    attend = varlen_attention if fits else packed_attention
    return attend(module, query, key, value, *rest, **how)


@lru_cache
def takes_varlen(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether torch's kernel takes heads of `width` numbers; logged once for each kind."""
    fits = (
        device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        and width <= LONGEST_HEAD
        and width % HEAD_UNIT == 0
        and torch.cuda.get_device_capability(device) >= AMPERE
    )
    event(
        logger,
        "attention of packs",
        kernel="varlen" if fits else "sdpa",
        device=device.type,
        dtype=dtype,
        head=width,
    )
    return fits


def flash_attention(
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
    """The same by the flash-attn package."""
    from flash_attn import flash_attn_varlen_func

    layout = layout_of(query, packed_layout, attention_mask, others)
    q, k, v = rows(query, key, value, layout)
    queries, keys, _order = varlen_layout(layout, query.device)
    longest_query, longest_key = longest(layout)
    output = flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q=queries,
        cu_seqlens_k=keys,
        max_seqlen_q=longest_query,
        max_seqlen_k=longest_key,
        dropout_p=dropout,
        softmax_scale=scaling,
        causal=True,
        window_size=(-1, -1) if sliding_window is None else (sliding_window - 1, 0),
    )
    return output.unsqueeze(0), None


def rows(query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    """[1, heads, N, D] each -> queries [N, heads, D]; keys and values of all pieces one after the other."""
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    _queries, _keys, order = varlen_layout(layout, query.device)
    return (q, k, v) if order is None else (q, k.index_select(0, order), v.index_select(0, order))


def longest(layout: Layout) -> tuple[int, int]:
    """Tokens of the longest piece, and the most keys that a piece sees."""
    return max(n for run in layout for n in run), max(run[0] + max(run[1:], default=0) for run in layout)


@lru_cache(maxsize=2)
def varlen_layout(layout: Layout, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Ends of the query pieces and of their keys, each from 0 on, and the positions of these keys in the pack; None
    where these are the pack as it is.

    A branch has the trunk's keys before its own, and its queries stand at the end of them.
    """
    queries, keys, start = [0], [0], 0
    order: list[int] = []
    for run in layout:
        trunk = range(start, start + run[0])
        for number, length in enumerate(run):
            own = range(start, start + length)
            order += [*trunk, *own] if number else own
            queries.append(queries[-1] + length)
            keys.append(len(order))
            start += length
    ends = [torch.tensor(x, dtype=torch.int32, device=device) for x in (queries, keys)]
    return ends[0], ends[1], None if len(order) == start else torch.tensor(order, device=device)
