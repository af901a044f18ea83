"""Attention of one engine step over a ragged batch, registered with transformers' AttentionInterface.

The model runs once per step over the flattened tokens [1, T] of all sequences: first one token per decoding
row, slab by slab, then the prompt chunks. Projections, norms and MLPs process all tokens alike. This module
stores the new keys and values, and restricts each token's attention to its own sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.slab import PrefillCache, Slab

NAME = "slime_ragged"
_UNSUPPORTED = ("softcap", "s_aux", "position_bias", "sinks")


@dataclass
class DecodeSpan:
    """Rows of one slab, one token each, at offsets [start, start + rows) of the flattened batch."""

    slab: Slab[Sequence]
    start: int
    positions: Tensor  # [rows] position of the new token
    index: Tensor  # [rows] 0, 1, ...
    longest: int
    _masks: dict[int | None, Tensor] = field(default_factory=dict)

    def mask(self, window: int | None) -> Tensor:
        """Returns a boolean mask [rows, 1, 1, longest]: the positions that each row's token may attend to."""
        if window not in self._masks:
            keys = torch.arange(self.longest, device=self.positions.device)[None, :]
            queries = self.positions[:, None]
            mask = keys <= queries
            if window is not None:
                mask &= keys > queries - window
            self._masks[window] = mask[:, None, None, :]
        return self._masks[window]

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Returns attention outputs [rows, H, Dv] for query [H, rows, D], key and value [kv_heads, rows, D]."""
        rows, heads = query.shape[1], query.shape[0]
        keys, values = self.slab.layers[layer]
        keys[self.index, :, self.positions] = key.transpose(0, 1)
        values[self.index, :, self.positions] = value.transpose(0, 1)
        kv_heads = keys.shape[1]
        # heads that share a key head become query positions, so that grouped-query attention copies no keys
        grouped = query.transpose(0, 1).reshape(rows, kv_heads, heads // kv_heads, -1)
        out = scaled_dot_product_attention(
            grouped,
            keys[:rows, :, : self.longest],
            values[:rows, :, : self.longest],
            attn_mask=self.mask(window),
            scale=scale,
        )
        return out.reshape(rows, heads, -1)


@dataclass
class ChunkSpan:
    """Prompt positions [first, last) of one sequence, at offset `start` of the flattened batch."""

    cache: PrefillCache
    start: int
    first: int
    last: int
    _masks: dict[int | None, Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, device: torch.device) -> Tensor:
        if window not in self._masks:
            self._masks[window] = causal_mask(self.first, self.last, window, device)
        return self._masks[window]

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Returns attention outputs [n, H, Dv] for query [H, n, D], key and value [kv_heads, n, D]."""
        heads, count, _ = query.shape
        keys, values = self.cache.write(layer, self.first, key, value)
        kv_heads = keys.shape[0]
        group = heads // kv_heads
        plain = self.first == 0 and (window is None or window >= self.last)
        out = scaled_dot_product_attention(
            query.reshape(kv_heads, group, count, -1),
            keys[:, None].expand(-1, group, -1, -1),
            values[:, None].expand(-1, group, -1, -1),
            attn_mask=None if plain else self.mask(window, query.device),
            is_causal=plain,
            scale=scale,
        )
        return out.reshape(heads, count, -1).transpose(0, 1)


@dataclass
class RaggedBatch:
    """The tokens of one step, for the attention function."""

    decode: list[DecodeSpan]
    chunks: list[ChunkSpan]


def ragged_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    ragged_batch: RaggedBatch | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Implements transformers' attention interface: returns outputs [1, T, H, Dv].

    query [1, H, T, D], key and value [1, kv_heads, T, D].

    Raises:
        NotImplementedError: the model uses an unsupported variant of attention.
    """
    for name in _UNSUPPORTED:
        if kwargs.get(name) is not None:
            raise NotImplementedError(f"the embedded engine does not support attention with {name!r}")
    if ragged_batch is None:
        raise NotImplementedError("this architecture does not pass its keyword arguments to the attention")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    layer: int = module.layer_idx
    parts: list[tuple[DecodeSpan | ChunkSpan, int, int]] = []
    for span in ragged_batch.decode:
        end = span.start + len(span.slab.rows)
        parts.append((span, span.start, end))
    for chunk in ragged_batch.chunks:
        parts.append((chunk, chunk.start, chunk.start + chunk.last - chunk.first))
    outs = [
        span.attend(layer, query[0, :, a:b], key[0, :, a:b], value[0, :, a:b], scale, sliding_window)
        for span, a, b in parts
    ]
    return (outs[0] if len(outs) == 1 else torch.cat(outs))[None], None


def causal_mask(first: int, last: int, window: int | None, device: torch.device) -> Tensor:
    """Returns a boolean mask [last - first, last]: position i attends to j <= i (with a window: j > i -
    window)."""
    keys = torch.arange(last, device=device)[None, :]
    queries = torch.arange(first, last, device=device)[:, None]
    mask = keys <= queries
    return mask & (keys > queries - window) if window is not None else mask
