"""Prefix cache: keys and values of recent requests, reused for prompts with the same prefix.

The next turn of a conversation thus costs only its new tokens. Entries are computed by the live weights,
dropped when these are replaced, and used only for requests of the same adapter.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slime.engines.embedded.slab import LayerView, PrefillCache

SHORTEST = 32
"""Smallest number of tokens to reuse; copying fewer is hardly cheaper than computing them."""


@dataclass(eq=False)
class Prefix:
    """Tokens with their keys and values.

    Attributes:
        ids: token ids, 4 bytes each.
        bytes: size of ids, keys and values.
        adapter: adapter that computed them; None: the base model only.
        was_used: a later prompt reused it; such entries are evicted after others.
    """

    ids: bytes
    layers: dict[int, LayerView]
    bytes: int
    adapter: str | None = None
    was_used: bool = False


class Prefixes:
    """The cached prefixes, at most `most_bytes` bytes. Used by the engine thread only."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # least recently used first
        self._kept: list[Prefix] = []

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self._kept)

    def clear(self) -> None:
        self._kept.clear()

    def drop(self, adapter: str) -> None:
        """Drops entries that an adapter contributed to."""
        self._kept = [one for one in self._kept if one.adapter != adapter]

    def copy_into(self, cache: PrefillCache, tokens: Sequence[int], adapter: str | None = None) -> int:
        """Copies the longest cached prefix of these tokens to a sequence's cache; returns the number of
        tokens."""
        prompt_ids = _packed(tokens)
        shared = [_common(one.ids, prompt_ids) if one.adapter == adapter else 0 for one in self._kept]
        count = max(shared, default=0)
        if count < SHORTEST:
            return 0
        kept = self._kept.pop(shared.index(count))
        for layer, (keys, values) in kept.layers.items():
            cache.write(layer, 0, keys[:, :count], values[:, :count])
        kept.was_used = True
        self._kept.append(kept)
        return count

    def keep(
        self, tokens: Sequence[int], layers: Mapping[int, LayerView], adapter: str | None = None
    ) -> None:
        """Caches a copy of the keys and values of these tokens, replacing shorter prefixes of them."""
        if len(tokens) < SHORTEST:
            return
        ids = _packed(tokens)
        size = len(ids) + sum(tensor.nbytes for pair in layers.values() for tensor in pair)
        same_adapter = [one for one in self._kept if one.adapter == adapter]
        if size > self._most_bytes or any(one.ids.startswith(ids) for one in same_adapter):
            return
        shorter = [one for one in same_adapter if ids.startswith(one.ids)]
        self._kept = [one for one in self._kept if one not in shorter]
        copied = {layer: (_copy(keys), _copy(values)) for layer, (keys, values) in layers.items()}
        self._kept.append(Prefix(ids, copied, size, adapter, any(one.was_used for one in shorter)))
        self._make_room()

    def _make_room(self) -> None:
        """Evicts entries, those never reused first, but never the newest."""
        total = self.bytes
        while total > self._most_bytes:
            older = self._kept[:-1]
            victim = next((one for one in older if not one.was_used), older[0])
            self._kept.remove(victim)
            total -= victim.bytes


def _packed(tokens: Sequence[int]) -> bytes:
    return array("I", tokens).tobytes()


def _common(one: bytes, other: bytes) -> int:
    """Returns the length of the common prefix, by bisection, because comparing bytes is fast."""
    low, high = 0, min(len(one), len(other)) // 4
    while low < high:
        middle = (low + high + 1) // 2
        if one[4 * low : 4 * middle] == other[4 * low : 4 * middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _copy(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)
