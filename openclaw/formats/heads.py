"""Cache of prompt ids, so that the beginning of a conversation is not rendered and tokenized again.

The head of a request consists of its tools and the messages before the last question of the user. For the families that
`rendering` lists, templates remove reasoning only before the last question, so a later question does not change a head:
its ids are a prefix of every prompt that begins with the same messages and has a question after them. A test compares
cached and full renderings.
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
"""Most bytes of cached ids. A head of 12,000 tokens has 48 KB."""
_ENTRY_BYTES = 250
_DIGEST_BYTES = 16
_FOLLOWS = ("user", "assistant")
"""Roles of the message after a cached head. System prompts are rendered at the beginning, and consecutive tool results
together."""


@dataclass(frozen=True)
class Head:
    """The cached part of a request's head.

    Attributes:
        key: cache key of the whole head.
        question: index of the last question, which is the number of messages of the head.
        length: number of messages whose ids are cached.
        ids: [T] ids of these messages.
    """

    key: bytes
    question: int
    length: int
    ids: array[int]


class KnownHeads:
    """Cache of the most recently used heads, of at most `limit` bytes. Thread-safe."""

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
        """Returns the longest cached prefix of a request's head; its `length` is 0 if none is cached.

        Returns None if the request has no head, or its tools or options cannot be represented as JSON.

        Args:
            options: everything besides tools and messages that changes the ids.
            prefixes: `prefix_keys` of the messages.
        """
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
        """Adds a head, and removes the least recently used ones over the limit."""
        with self._lock:
            if key not in self._ids:
                self._ids[key] = ids
                self._size += _bytes_of(ids)
            while self._size > self._limit:
                self._size -= _bytes_of(self._ids.popitem(last=False)[1])


def _last_question(messages: Sequence[Message]) -> int:
    """Returns the index of the last user message that is not a tool result in the format of Qwen's template; -1 if
    there is none."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message["role"] == "user" and not text_of(message).lstrip().startswith("<tool_response>"):
            return index
    return -1


def _bytes_of(ids: array[int]) -> int:
    return len(ids) * ids.itemsize + _ENTRY_BYTES
