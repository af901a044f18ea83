"""Caches the prompt ids of histories: the head of a conversation is not rendered and tokenized again.

The head of a request is its tools and its messages before the last question. Templates drop reasoning up to the last
question, so a later question changes nothing of a head. Its ids are a prefix of every prompt that begins with the
same messages and has a question after them, which is all that `KnownHeads` requires. `rendering` lists the families
whose renderers do so; a test compares them.
"""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from openclaw.common.messages import text_of
from openclaw.types import Message

KEPT_BYTES = 8 << 20
"""Most bytes of cached ids; a head of 12,000 tokens has 48 KB."""
_ENTRY_BYTES = 250
_DIGEST_BYTES = 16
_FOLLOWS = ("user", "assistant")
"""Roles that may follow a head: not a system prompt, and not a tool result that is rendered together with those
before it."""


@dataclass(frozen=True)
class Head:
    """The cached rendering of a request's head.

    key: of the whole head; question: number of its messages, which is the index of the last question. length: number of
    cached messages; ids [T]: their ids.
    """

    key: bytes
    question: int
    length: int
    ids: array[int]


class KnownHeads:
    """The most recently rendered heads. Thread-safe."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._ids: OrderedDict[bytes, array[int]] = OrderedDict()
        self._lock = threading.Lock()

    def find(
        self,
        messages: Sequence[Message],
        tools: list[Message] | None,
        options: object,
        prefixes: Sequence[bytes] | None,
    ) -> Head | None:
        """Returns the longest cached head of a request; of length 0 if there is none. `prefixes`: its `prefix_keys`.
        Returns None if a request has no head, or contains values that JSON cannot represent."""
        question = _last_question(messages)
        if question < 1 or prefixes is None:
            return None
        try:
            common = orjson.dumps([tools, options])
        except (TypeError, ValueError):
            return None
        start = hashlib.blake2b(common, digest_size=_DIGEST_BYTES).digest()
        with self._lock:
            for length in range(question, 0, -1):
                ids = self._ids.get(start + prefixes[length])
                if ids is not None and messages[length]["role"] in _FOLLOWS:
                    self._ids.move_to_end(start + prefixes[length])
                    return Head(start + prefixes[question], question, length, ids)
        return Head(start + prefixes[question], question, 0, array("i"))

    def keep(self, key: bytes, ids: array[int]) -> None:
        with self._lock:
            if key not in self._ids:
                self._ids[key] = ids
                self._size += _bytes_of(ids)
            while self._size > self._limit:
                self._size -= _bytes_of(self._ids.popitem(last=False)[1])


def _last_question(messages: Sequence[Message]) -> int:
    """Returns the index of the last user text that no template can mistake for a tool's result; -1 if there is
    none."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message["role"] == "user" and not text_of(message).lstrip().startswith("<tool_response>"):
            return index
    return -1


def _bytes_of(ids: array[int]) -> int:
    return len(ids) * ids.itemsize + _ENTRY_BYTES
