"""Attention kernels for packed sequences, selected by --attn-implementation.

All kernels read the same layout and compute the same result. The model's forward pass hands the layout to the kernel
as the keyword argument `packed_layout`.

* `sdpa`: one SDPA call for each piece of the pack, without a mask over the whole pack. It is the reference and runs
on every device. * `varlen`, `flash_attention_2`: one FlashAttention call for the whole pack. torch includes this
kernel for 16-bit tensors on GPUs since Ampere; the flash-attn package has the same one. * `flex_attention`: one call,
whose mask is built block by block. torch's own `create_block_mask` first computes all N x N entries, which takes over
10 GB for 32,768 tokens.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from slime.errors import ConfigError, TrainError, unknown_name
from slime.training.core.packing import Layout, pieces_of
from slime.utils.logging import event

if TYPE_CHECKING:
    from slime.flags.model import ModelArguments

SDPA = "slime_packed"
"""The name of the per-sequence loop in transformers' registry of attention functions."""
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
    """Computes attention with one SDPA call for each piece.

    Raises:
        query [1, heads, N, D], key and value [1, kv_heads, N, D] -> [1, N, heads, D].
    """
    pieces = pieces_of(layout_of(query, packed_layout, attention_mask, others))
    how = {"dropout_p": dropout, "scale": scaling}
    queries, keys, values = (
        torch.split(x, [piece.length for piece in pieces], 2) for x in (query, key, value)
    )
    outputs = []
    for number, piece in enumerate(pieces):
        seen, before = (*piece.path, number), piece.before
        k, v = (_joined([parts[i] for i in seen]) for parts in (keys, values))
        # Plain causal attention over the whole path is cheaper than a mask over it, unless the path is long.
        whole = 0 < before <= piece.length and _mask(k.shape[2], 0, sliding_window, k.device) is None
        q = _joined([queries[i] for i in seen]) if whole else queries[number]
        output = _attend(q, k, v, 0 if whole else before, sliding_window, how)
        outputs.append(output[:, :, before:] if whole else output)
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]


def layout_of(
    query: Tensor, packed: Layout | None, attention_mask: Tensor | None, others: dict[str, Any]
) -> Layout:
    """Returns the layout of queries [1, heads, N, D]; without `packed`, one sequence.

    Raises:
        TrainError: the model requests more than causal attention with a window.
    """
    unsupported = [name for name in UNSUPPORTED if others.get(name) is not None]
    if unsupported or attention_mask is not None:
        raise TrainError(
            f"packed attention does not support {unsupported or 'attention masks'}; use another model"
        )
    return packed or ((query.shape[2],),)


def _attend(q: Tensor, k: Tensor, v: Tensor, before: int, window: int | None, how: dict[str, Any]) -> Tensor:
    """Returns causal attention of queries whose keys are preceded by `before` other keys."""
    mask = _mask(q.shape[2], before, window, q.device)
    fewer = q.shape[1] != k.shape[1]
    if fewer and repeats_heads(q.device, q.dtype, mask is not None):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        fewer = False
    # On a CPU, the backward pass in 16 bits takes twice as long as in fp32.
    dtype = q.dtype
    if q.device.type == "cpu" and q.element_size() < 4:
        q, k, v = q.float(), k.float(), v.float()
    output = scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=fewer, **how)
    return output.to(dtype)


def repeats_heads(device: torch.device, dtype: torch.dtype, masked: bool) -> bool:
    """Returns whether keys and values must be repeated to the number of query heads.

    On a GPU, FlashAttention supports grouped heads, but neither masks nor fp32; the only other kernel that does
    builds the whole score matrix.
    """
    return device.type == "cuda" and (masked or dtype not in (torch.bfloat16, torch.float16))


def _mask(length: int, before: int, window: int | None, device: torch.device) -> Tensor | None:
    """Returns a boolean mask [length, before + length], or None if plain causal attention gives the same result."""
    if window is not None and before + length <= window:
        window = None
    if window is None and before == 0:
        return None
    queries = torch.arange(before, before + length, device=device)
    distance = queries[:, None] - torch.arange(before + length, device=device)[None, :]
    return (distance >= 0) if window is None else (distance >= 0) & (distance < window)


logger = logging.getLogger(__name__)

LONGEST_HEAD, HEAD_UNIT = 256, 8
"""The largest head dimension that the kernel supports, and the number that the dimension must be a multiple of."""
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
    """Computes attention with one call of torch's varlen kernel (16 bits, CUDA).

    query [1, heads, N, D], key and value [1, kv_heads, N, D] -> [1, N, heads, D].
    """
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
    """Uses torch's varlen kernel if it supports the model's heads on this device, else SDPA for each
    sequence.

    Shapes as in `varlen_attention`.
    """
    fits = takes_varlen(query.device, query.dtype, query.shape[-1])
    attend = varlen_attention if fits else packed_attention
    return attend(module, query, key, value, *rest, **how)


@lru_cache
def takes_varlen(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Returns whether torch's varlen kernel supports heads of dimension `width`; logs the answer once for each
    combination."""
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
    """Like `varlen_attention`, with the flash-attn package."""
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
    """Converts tensors [1, heads, N, D] to queries [N, heads, D] and to keys and values [K, kv_heads, D],
    ordered by piece."""
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    _queries, _keys, order = varlen_layout(layout, query.device)
    return (q, k, v) if order is None else (q, k.index_select(0, order), v.index_select(0, order))


def longest(layout: Layout) -> tuple[int, int]:
    """Returns the largest number of query tokens in a piece, and the largest number of keys that a piece attends
    to."""
    pieces = pieces_of(layout)
    return max(piece.length for piece in pieces), max(piece.before + piece.length for piece in pieces)


@lru_cache(maxsize=2)
def varlen_layout(layout: Layout, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns cumulative lengths of the query pieces and of their keys (both from 0), and the keys' positions
    in the pack.

    Positions are None if the keys are the pack in its own order. The keys of a branch are the keys on its
    path, then its own; its queries are the last tokens of that path.
    """
    pieces = pieces_of(layout)
    queries, keys, order = [0], [0], list[int]()
    for piece in pieces:
        for start, length in (*(pieces[i][:2] for i in piece.path), piece[:2]):
            order += range(start, start + length)
        queries.append(piece.start + piece.length)
        keys.append(len(order))
    ends = [torch.tensor(x, dtype=torch.int32, device=device) for x in (queries, keys)]
    return ends[0], ends[1], None if len(order) == queries[-1] else torch.tensor(order, device=device)


BLOCK = 128
"""Tokens along each side of a mask block."""


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
    """Computes attention with flex attention, compiled on CUDA.

    query [1, heads, N, D], key and value [1, kv_heads, N, D] -> [1, N, heads, D].
    """
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
    """Returns flex attention's mask of a pack, computed from the boundaries of its pieces. Memory is linear in N and
    quadratic in the numbers of pieces and blocks."""
    tokens = sum(piece.length for piece in pieces_of(layout))
    partial, full = _blocks(_fragments(layout), -(-tokens // BLOCK), window)
    some, some_ids, all_, all_ids = (x.to(device) for kind in (partial, full) for x in _ordered(kind))
    sees, lengths = visible(layout, window, device), (tokens, tokens)
    return BlockMask.from_kv_blocks(some, some_ids, all_, all_ids, BLOCK, sees, lengths)


def visible(
    layout: Layout, window: int | None, device: torch.device
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Returns flex attention's mask function: whether the token at position q of the pack attends to the one at k."""
    pieces = pieces_of(layout)
    lengths = torch.tensor([piece.length for piece in pieces])
    number, until = torch.arange(len(pieces)), torch.tensor([piece.until for piece in pieces])
    piece_of, until_of = (x.repeat_interleave(lengths).to(device) for x in (number, until))
    shift = torch.tensor([piece.before - piece.start for piece in pieces])
    place_of = (torch.arange(int(lengths.sum())) + shift.repeat_interleave(lengths)).to(device)

    def sees(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        known = (piece_of[k] <= piece_of[q]) & (piece_of[q] < until_of[k])
        distance = place_of[q] - place_of[k]
        near = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        return known & near

    return sees


class _Fragments(NamedTuple):
    """Pieces, split at block boundaries; all tensors are [F]. `first`, `last`: positions of the first and the last
    token on their path."""

    piece: Tensor
    until: Tensor
    block: Tensor
    first: Tensor
    last: Tensor


def _fragments(layout: Layout) -> _Fragments:
    fragments = []
    for number, piece in enumerate(pieces_of(layout)):
        start, end, shift = piece.start, piece.start + piece.length, piece.before - piece.start
        cuts = [start, *range((start // BLOCK + 1) * BLOCK, end, BLOCK), end]
        fragments += [
            (number, piece.until, a // BLOCK, a + shift, b - 1 + shift) for a, b in pairwise(cuts) if a < b
        ]
    return _Fragments(*torch.tensor(fragments).unbind(1))


def _blocks(parts: _Fragments, blocks: int, window: int | None) -> tuple[Tensor, Tensor]:
    """Returns two masks [blocks, blocks], queries by keys: partly visible blocks, and fully visible blocks."""
    q, k = (_Fragments(*(x.unsqueeze(dim) for x in parts)) for dim in (1, 0))
    least, most = q.first - k.last, q.last - k.first
    within = (k.piece <= q.piece) & (q.piece < k.until)
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
    """Returns the number of selected blocks in each row [1, 1, blocks], and block indices with the selected ones
    first."""
    order = blocks.int().argsort(dim=-1, descending=True, stable=True).int()
    return blocks.sum(-1).int()[None, None], order[None, None]


KERNELS: dict[str, Any] = {
    "auto": best_attention,
    "varlen": varlen_attention,
    "sdpa": packed_attention,
    "flex_attention": flex_packed_attention,
    "flash_attention_2": flash_attention,
}
NAMES = {kernel: f"slime_{kernel}" for kernel in KERNELS} | {"sdpa": SDPA}
"""The names of the kernels in transformers' registry of attention functions."""


def attention_name(args: ModelArguments) -> str:
    """Returns the registered name for --attn-implementation.

    Raises:
        ConfigError: no kernel has that name, or it is not installed.
    """
    if args.attn_implementation not in KERNELS:
        raise unknown_name("--attn-implementation", args.attn_implementation, KERNELS)
    if args.attn_implementation == "flash_attention_2" and importlib.util.find_spec("flash_attn") is None:
        raise ConfigError(
            "--attn-implementation flash_attention_2 needs the flash-attn package, which has no "
            "wheels for this torch; use varlen, the same kernel inside torch"
        )
    return NAMES[args.attn_implementation]


for _kernel, _name in NAMES.items():
    AttentionInterface.register(_name, KERNELS[_kernel])
