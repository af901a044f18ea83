"""Attention over packed sequences by one kernel for the whole pack: FlashAttention's varlen, or flex attention.

Both read the same layout as `attention.py`, whose loop over sequences is the reference and needs neither.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from transformers import AttentionInterface

from slime.errors import ConfigError, unknown_name
from slime.training.attention.packed import NAME as SDPA
from slime.training.attention.packed import layout_of
from slime.training.core.packing import Layout

if TYPE_CHECKING:
    from slime.arguments.groups.model import ModelArguments

FLASH, FLEX = "slime_flash", "slime_flex"
KERNELS = {"sdpa": SDPA, "flex_attention": FLEX, "flash_attention_2": FLASH}
"""By the name in --attn-implementation."""


def attention_name(args: ModelArguments) -> str:
    """The registered name behind --attn-implementation.

    Raises:
        ConfigError: no kernel has that name, or it is not installed.
    """
    if args.attn_implementation not in KERNELS:
        raise unknown_name("--attn-implementation", args.attn_implementation, KERNELS)
    if args.attn_implementation == "flash_attention_2" and importlib.util.find_spec("flash_attn") is None:
        raise ConfigError(
            "--attn-implementation flash_attention_2 needs the flash-attn package; install it, or take sdpa"
        )
    return KERNELS[args.attn_implementation]


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
    """query [1, heads, N, D], key and value [1, kv_heads, N, D] -> [1, N, heads, D]; bf16 on CUDA."""
    from flash_attn import flash_attn_varlen_func

    layout = layout_of(query, packed_layout, attention_mask, others)
    queries, keys, order = varlen_layout(layout, query.device)
    output = flash_attn_varlen_func(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1)[order],
        value[0].transpose(0, 1)[order],
        cu_seqlens_q=queries,
        cu_seqlens_k=keys,
        max_seqlen_q=max(length for run in layout for length in run),
        max_seqlen_k=max(run[0] + max(run[1:], default=0) for run in layout),
        dropout_p=dropout,
        softmax_scale=scaling,
        causal=True,
        window_size=(-1, -1) if sliding_window is None else (sliding_window - 1, 0),
    )
    return output.unsqueeze(0), None


@lru_cache(maxsize=2)
def varlen_layout(layout: Layout, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Ends of the query pieces and of their keys, each from 0 on, and the positions of these keys in the pack.

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
    return ends[0], ends[1], torch.tensor(order, device=device)


def flex_packed_attention(
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
    """query [1, heads, N, D], key and value [1, kv_heads, N, D] -> [1, N, heads, D]. Compiled on CUDA."""
    layout = layout_of(query, packed_layout, attention_mask, others)
    mask = _block_mask(layout, sliding_window, query.device)
    attend = _compiled() if query.is_cuda else flex_attention
    grouped = query.shape[1] != key.shape[1]
    output = attend(query, key, value, block_mask=mask, scale=scaling, enable_gqa=grouped)
    return output.transpose(1, 2).contiguous(), None


@lru_cache(maxsize=1)
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)


@lru_cache(maxsize=2)
def _block_mask(layout: Layout, window: int | None, device: torch.device) -> BlockMask:
    runs = [number for number, run in enumerate(layout) for _ in range(sum(run))]
    branches = [number for run in layout for number, length in enumerate(run) for _ in range(length)]
    starts = [0 if number == 0 else run[0] for run in layout for number in range(len(run))]
    lengths = [length for run in layout for length in run]
    places = [first + t for first, length in zip(starts, lengths, strict=True) for t in range(length)]
    run_of, branch_of, place_of = (torch.tensor(x, device=device) for x in (runs, branches, places))

    def sees(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        known = (branch_of[k] == 0) | (branch_of[k] == branch_of[q])
        distance = place_of[q] - place_of[k]
        near = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        return (run_of[q] == run_of[k]) & known & near

    return create_block_mask(sees, None, None, len(runs), len(runs), device=device)


AttentionInterface.register(FLASH, flash_attention)
AttentionInterface.register(FLEX, flex_packed_attention)
