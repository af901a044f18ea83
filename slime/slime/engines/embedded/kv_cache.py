"""Storage of keys and values.

A prompt is prefilled into separate buffers (`PrefillCache`). A decoding sequence is one row of a `Slab`: all
sequences of one length class, without gaps, so that one attention call over a view serves them all.
Low-priority sequences have separate slabs, which a step can omit. Classes double in length; a full row moves
to the next class. The keys and values of a finished sequence are copied for prompts with the same prefix
(`prefixes.py`) until the weights are replaced. Keys and values of older weights are never reused for a later
request.
"""

from __future__ import annotations

from collections.abc import Mapping

from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.slab import LayerView, Slab

SMALLEST_CLASS = 256


def length_class(length: int) -> int:
    """Returns the smallest class (tokens) that holds `length` tokens."""
    size = SMALLEST_CLASS
    while size < length:
        size *= 2
    return size


class KVStore:
    """All slabs, by length class and by whether their rows have low priority."""

    def __init__(self) -> None:
        self.slabs: dict[tuple[int, bool], Slab[Sequence]] = {}

    def insert(self, sequence: Sequence, stored: Mapping[int, LayerView]) -> None:
        size = length_class(sequence.cached + 1)
        self.slabs.setdefault((size, sequence.is_low_priority), Slab(size)).add(sequence, stored)

    def make_room(self, sequence: Sequence) -> None:
        """Moves a row whose slab is full to the next class."""
        slab = sequence.slab
        if slab is None or sequence.cached < slab.size:
            return
        stored = {i: (k.clone(), v.clone()) for i, (k, v) in slab.row_views(sequence.row).items()}
        self.remove(sequence)
        self.insert(sequence, stored)

    def remove(self, sequence: Sequence, wipe: bool = False) -> None:
        if sequence.slab is not None:
            slab = sequence.slab
            slab.remove(sequence, wipe)
            if not slab.rows:
                del self.slabs[slab.size, sequence.is_low_priority]

    @property
    def rows(self) -> int:
        return sum(len(slab.rows) for slab in self.slabs.values())


def reserved(sequence: Sequence) -> int:
    """Returns the number of tokens of storage that a sequence uses or will use."""
    if sequence.slab is not None:
        return length_class(sequence.cached + 1)
    return length_class(sequence.length + 1)
