"""The token ids of the texts that were read last: a conversation's history is sent again with every turn."""

from __future__ import annotations

import sys
import threading
from array import array
from collections import OrderedDict

_ENTRY_BYTES = 150
"""Of an ordered dictionary, about."""


class TextCache:
    """Ids of the texts used last, up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._ids: OrderedDict[str, array[int]] = OrderedDict()  # a list takes nine times the memory
        self._lock = threading.Lock()

    def get(self, text: str) -> list[int] | None:
        with self._lock:
            ids = self._ids.get(text)
            if ids is None:
                return None
            self._ids.move_to_end(text)
            return ids.tolist()

    def clear(self) -> None:
        with self._lock:
            self._ids.clear()
            self._size = 0

    def put(self, text: str, ids: list[int]) -> None:
        with self._lock:
            if text not in self._ids:
                self._ids[text] = array("i", ids)
                self._size += _bytes_of(text, self._ids[text])
            while self._size > self._limit:
                self._size -= _bytes_of(*self._ids.popitem(last=False))


def _bytes_of(text: str, ids: array[int]) -> int:
    """Memory of an entry, in bytes."""
    return sys.getsizeof(text) + sys.getsizeof(ids) + _ENTRY_BYTES
