"""Attention over packed sequences by flex attention, whose mask is written down block by block.

torch's own way to such a mask computes all N x N numbers of it first, 10 GB and more of 32,768 tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from slime.training.attention.packed import layout_of
from slime.training.core.packing import Layout

BLOCK = 128
"""Tokens along each side of a block of the mask."""


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
    mask = block_mask(layout, sliding_window, query.device)
    attend = _compiled() if query.is_cuda else flex_attention
    grouped = query.shape[1] != key.shape[1]
    output = attend(query, key, value, block_mask=mask, scale=scaling, enable_gqa=grouped)
    return output.transpose(1, 2).contiguous(), None


@lru_cache(maxsize=1)
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)


@lru_cache(maxsize=2)
def block_mask(layout: Layout, window: int | None, device: torch.device) -> BlockMask:
    """What flex attention needs to know of a pack, from the ends of its pieces: memory grows with N and with the square
    of pieces and blocks, never with that of N."""
    tokens = sum(n for run in layout for n in run)
    partial, full = _blocks(_fragments(layout), -(-tokens // BLOCK), window)
    some, some_ids, all_, all_ids = (x.to(device) for kind in (partial, full) for x in _ordered(kind))
    sees, lengths = visible(layout, window, device), (tokens, tokens)
    return BlockMask.from_kv_blocks(some, some_ids, all_, all_ids, BLOCK, sees, lengths)


def visible(
    layout: Layout, window: int | None, device: torch.device
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Whether the token at place q of the pack sees the one at k, as flex attention asks for it."""
    pieces = [
        (number, branch, n, run[0]) for number, run in enumerate(layout) for branch, n in enumerate(run)
    ]
    lengths = torch.tensor([n for _, _, n, _ in pieces])
    run_of, branch_of = (
        torch.tensor([piece[i] for piece in pieces]).repeat_interleave(lengths).to(device) for i in (0, 1)
    )
    behind = torch.tensor([trunk if branch else 0 for _, branch, _, trunk in pieces])
    first = lengths.cumsum(0) - lengths
    place_of = (torch.arange(int(lengths.sum())) + (behind - first).repeat_interleave(lengths)).to(device)

    def sees(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        known = (branch_of[k] == 0) | (branch_of[k] == branch_of[q])
        distance = place_of[q] - place_of[k]
        near = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        return (run_of[q] == run_of[k]) & known & near

    return sees


class _Fragments(NamedTuple):
    """Pieces, cut where blocks end; all [F]. `first`, `last`: places of their ends in what they see of their run."""

    run: Tensor
    branch: Tensor
    block: Tensor
    first: Tensor
    last: Tensor


def _fragments(layout: Layout) -> _Fragments:
    found, start = [], 0
    for number, run in enumerate(layout):
        for branch, length in enumerate(run):
            shift = (run[0] if branch else 0) - start
            cuts = [start, *range((start // BLOCK + 1) * BLOCK, start + length, BLOCK), start + length]
            for a, b in pairwise(cuts):
                if a < b:
                    found.append((number, branch, a // BLOCK, a + shift, b - 1 + shift))
            start += length
    return _Fragments(*torch.tensor(found).unbind(1))


def _blocks(parts: _Fragments, blocks: int, window: int | None) -> tuple[Tensor, Tensor]:
    """[blocks, blocks] of queries by keys: those of which some pairs see each other, and those of which all do."""
    q, k = (_Fragments(*(x.unsqueeze(dim) for x in parts)) for dim in (1, 0))
    least, most = q.first - k.last, q.last - k.first
    within = (q.run == k.run) & ((k.branch == 0) | (k.branch == q.branch))
    near = within & (most >= 0)
    whole = within & (least >= 0)
    if window is not None:
        near, whole = near & (least < window), whole & (most < window)
    of_block = (q.block * blocks + k.block).flatten()
    size = parts.last - parts.first + 1
    pairs = (size.unsqueeze(1) * size.unsqueeze(0) * whole).flatten()
    grid = torch.zeros(2, blocks * blocks, dtype=torch.long)
    grid[0].index_add_(0, of_block, near.flatten().long())
    grid[1].index_add_(0, of_block, pairs)
    full = (grid[1] == BLOCK * BLOCK).view(blocks, blocks)
    return (grid[0] > 0).view(blocks, blocks) & ~full, full


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row has [1, 1, blocks], and their numbers before those of the others."""
    order = blocks.int().argsort(dim=-1, descending=True, stable=True).int()
    return blocks.sum(-1).int()[None, None], order[None, None]
