"""Buffers of keys and values: one per sequence during prefill, and one row per decoding sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

LayerView = tuple[Tensor, Tensor]
"""Keys [kv_heads, length, head_dim] and values [kv_heads, length, value_dim] of one layer."""


class PrefillCache:
    """Keys and values of one sequence during prefill; a layer is allocated at its first write."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.layers: dict[int, LayerView] = {}

    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> LayerView:
        """Stores keys and values [kv_heads, n, dim] at `start`; returns views of all stored ones."""
        if layer not in self.layers:
            self.layers[layer] = (
                keys.new_empty(keys.shape[0], self.capacity, keys.shape[2]),
                values.new_empty(values.shape[0], self.capacity, values.shape[2]),
            )
        all_keys, all_values = self.layers[layer]
        end = start + keys.shape[1]
        all_keys[:, start:end] = keys
        all_values[:, start:end] = values
        return all_keys[:, :end], all_values[:, :end]

    def views(self, length: int) -> dict[int, LayerView]:
        return {layer: (k[:, :length], v[:, :length]) for layer, (k, v) in self.layers.items()}

    @property
    def bytes_per_token(self) -> int:
        pairs = self.layers.values()
        return sum(t.shape[0] * t.shape[2] * t.element_size() for pair in pairs for t in pair)


class SlabRow(Protocol):
    """A sequence that can be stored as a row: `cached` tokens, at `row` of `slab` (None, -1: not stored)."""

    cached: int
    slab: Slab[Any] | None
    row: int


R = TypeVar("R", bound=SlabRow)


class Slab(Generic[R]):
    """Rows of one length class, without gaps. `layers[i]`: keys and values [capacity, kv_heads, size, dim].

    Values after a row's end are masked but must be finite, because NaN times zero is NaN.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: list[R] = []
        self.layers: dict[int, LayerView] = {}
        self._capacity = 0

    def add(self, sequence: R, stored: Mapping[int, LayerView]) -> None:
        if len(self.rows) == self._capacity:
            self._resize(max(1, 2 * self._capacity), stored)
        row = len(self.rows)
        for layer, (keys, values) in stored.items():
            self.layers[layer][0][row, :, : sequence.cached] = keys
            self.layers[layer][1][row, :, : sequence.cached] = values
        self.rows.append(sequence)
        sequence.slab, sequence.row = self, row

    def remove(self, sequence: R, wipe: bool = False) -> None:
        """Frees a row; the last row moves into the gap. `wipe`: zero values that may not be finite."""
        hole, last = sequence.row, self.rows.pop()
        for pair in self.layers.values() if wipe else ():
            for tensor in pair:
                tensor[hole] = 0
        if last is not sequence:
            for keys, values in self.layers.values():
                keys[hole, :, : last.cached] = keys[len(self.rows), :, : last.cached]
                values[hole, :, : last.cached] = values[len(self.rows), :, : last.cached]
            self.rows[hole] = last
            last.row = hole
        sequence.slab, sequence.row = None, -1
        if self._capacity >= max(2, 4 * len(self.rows)):
            self._resize(self._capacity // 2, self.row_views(0) if self.rows else {})

    def row_views(self, row: int) -> dict[int, LayerView]:
        length = self.rows[row].cached
        return {i: (k[row, :, :length], v[row, :, :length]) for i, (k, v) in self.layers.items()}

    def _resize(self, capacity: int, shapes: Mapping[int, LayerView]) -> None:
        used = max((s.cached for s in self.rows), default=0)
        old, self.layers = self.layers, {}
        for layer, pair in shapes.items():
            grown = tuple(t.new_zeros(capacity, t.shape[0], self.size, t.shape[2]) for t in pair)
            for before, after in zip(old.get(layer, ()), grown, strict=False):
                after[: len(self.rows), :, :used] = before[: len(self.rows), :, :used]
            self.layers[layer] = (grown[0], grown[1])
        self._capacity = capacity if shapes else 0
