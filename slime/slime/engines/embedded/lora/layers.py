"""Linear layers that add the contributions of adapters to the rows of a step.

The base model's product is computed once for all rows. Decoding rows, one per sequence, get x A^T B^T of
their adapters in two products over the concatenated factors of all used adapters; a mask zeroes the parts of
other adapters in between. A prompt's chunk has many rows of one adapter and uses only that adapter's factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from slime.engines.embedded.lora.factors import AdapterFactors, adaptable_layers
from slime.engines.embedded.model import ServedModel

SPARE_PLACES = 4
"""Maximum unused slots in the packed factors; with more, they are packed again."""


@dataclass(frozen=True)
class AdaptedChunk:
    """Rows [start, end) of the flattened batch, the rows whose logits are kept [kept_start, kept_end), and
    their adapter."""

    start: int
    end: int
    kept_start: int
    kept_end: int
    factors: AdapterFactors


@dataclass
class AdaptedStep:
    """The adapters' factors that the layers use in one step.

    Attributes:
        mask: [rows, slots * rank], each row's adapter scale in that adapter's slot, else 0; None: no adapter
            rows.
        down, up: factors of all slots by layer, [slots * rank, in] and [slots * rank, out].
    """

    mask: Tensor | None
    down: dict[str, Tensor]
    up: dict[str, Tensor]
    chunks: list[AdaptedChunk]

    def add(self, layer: str, is_head: bool, x: Tensor, y: Tensor) -> None:
        """Adds the adapters' contribution for x [1, T, in] to y [1, T, out]; the head has only the kept rows."""
        if self.mask is not None and layer in self.down:
            rows = self.mask.shape[0]
            inner = linear(x[0, :rows], self.down[layer]).mul_(self.mask)
            y[0, :rows].addmm_(inner, self.up[layer])
        for chunk in self.chunks:
            start, end = (chunk.kept_start, chunk.kept_end) if is_head else (chunk.start, chunk.end)
            factors = chunk.factors
            if layer in factors.down and start < end:
                inner = linear(x[0, start:end], factors.down[layer])
                y[0, start:end].addmm_(inner, factors.up[layer], alpha=factors.scale)


@dataclass
class _Pack:
    """Concatenated factors of the decoding adapters, each in a slot of `rank` rows; `capacity` slots are
    allocated."""

    rank: int = 0
    capacity: int = 0
    places: list[AdapterFactors | None] = field(default_factory=list)
    down: dict[str, Tensor] = field(default_factory=dict)
    up: dict[str, Tensor] = field(default_factory=dict)

    def hold(self, adapters: Sequence[AdapterFactors]) -> None:
        """Assigns a slot to every adapter; reallocates memory if it is too small or mostly unused."""
        rank = max(one.rank for one in adapters)
        missing = [one for one in adapters if one not in self.places]
        free = [at for at, one in enumerate(self.places) if one not in adapters]
        needed = max(0, len(missing) - len(free))
        unused = len(self.places) + needed - len(adapters)
        if (
            rank > self.rank
            or len(self.places) + needed > self.capacity
            or unused > max(SPARE_PLACES, len(adapters))
        ):
            self.clear()
            self.rank, self.capacity = rank, 1 << (len(adapters) - 1).bit_length()
            missing, free = list(adapters), []
        for new in missing:
            if free:
                at = free.pop(0)
                self.places[at] = new
            else:
                at = len(self.places)
                self.places.append(new)
            self._write(at, new)

    def release(self, one: AdapterFactors) -> None:
        """Frees the adapter's slot."""
        self.places = [None if held is one else held for held in self.places]

    def clear(self) -> None:
        self.rank = self.capacity = 0
        self.places, self.down, self.up = [], {}, {}

    def used(self, part: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the used slots of `down` or `up`."""
        return {layer: tensor[: len(self.places) * self.rank] for layer, tensor in part.items()}

    def _write(self, at: int, one: AdapterFactors) -> None:
        first = at * self.rank
        for packed, theirs in ((self.down, one.down), (self.up, one.up)):
            for layer in theirs.keys() - packed.keys():
                like = theirs[layer]
                packed[layer] = like.new_zeros(self.capacity * self.rank, like.shape[1])
            for layer, tensor in packed.items():
                tensor[first : first + self.rank] = 0
                if layer in theirs:
                    tensor[first : first + one.rank] = theirs[layer]


class AdaptedLayers:
    """The linear layers of one model, for the decode thread.

    A layer is wrapped when an adapter first changes it; without adapter rows its output is unchanged.
    """

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._touched: set[str] = set()
        self._pack = _Pack()
        self._rows: list[AdapterFactors | None] = []
        self._step: AdaptedStep | None = None
        self.now: AdaptedStep | None = None

    @cached_property
    def _layers(self) -> dict[str, Any]:
        return adaptable_layers(self._model)

    def begin(self, rows: list[AdapterFactors | None], chunks: list[AdaptedChunk]) -> None:
        """Called before a forward pass. `rows`: the adapters of the decoding rows, which come first."""
        if self._step is None or rows != self._rows:
            self._rows, self._step = rows, self._packed(rows)
        for chunk in chunks:
            self._touch(chunk.factors)
        self.now = self._step
        if chunks:
            self.now = AdaptedStep(self._step.mask, self._step.down, self._step.up, chunks)
        elif self._step.mask is None:
            self.now = None

    def release(self, factors: AdapterFactors) -> None:
        """Must be called before the memory of an adapter without rows is freed, or its rows get another
        version."""
        self._pack.release(factors)
        self._rows, self._step, self.now = [], None, None

    def clear(self) -> None:
        """Frees the packed factors."""
        self._pack.clear()
        self._rows, self._step, self.now = [], None, None

    def _packed(self, rows: list[AdapterFactors | None]) -> AdaptedStep:
        adapters = list(dict.fromkeys(one for one in rows if one is not None))
        if not adapters:
            return AdaptedStep(None, {}, {}, [])
        for one in adapters:
            self._touch(one)
        self._pack.hold(adapters)
        places, rank = self._pack.places, self._pack.rank
        like = next(iter(adapters[0].down.values()))
        mask = torch.zeros(len(rows), len(places))
        for row, factors in enumerate(rows):
            if factors is not None:
                mask[row, places.index(factors)] = factors.scale
        mask = mask.to(like).repeat_interleave(rank, dim=1)
        return AdaptedStep(mask, self._pack.used(self._pack.down), self._pack.used(self._pack.up), [])

    def _touch(self, factors: AdapterFactors) -> None:
        for layer in factors.down.keys() - self._touched:
            self._adapt(layer, self._layers[layer])
            self._touched.add(layer)

    def _adapt(self, name: str, layer: Any) -> None:
        plain, is_head = layer.forward, layer is self._model.module.get_output_embeddings()

        def forward(x: Tensor) -> Tensor:
            y: Tensor = plain(x)
            if self.now is not None:
                self.now.add(name, is_head, x, y)
            return y

        layer.forward = forward
