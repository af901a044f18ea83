"""Prompt ids of histories that come again: their head is neither rendered nor read as tokens a second time.

The head of a request is its tools and its messages before the last question. Templates drop reasoning up to the last
question, so a later question changes nothing of a head. Its ids begin every prompt that begins with the same messages and
has a question after them, and `KnownHeads` asks for no more. `rendering` names the families whose renderers do so; a test
compares.
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
"""Of ids; a head of 12,000 tokens has 48 KB."""
_ENTRY_BYTES = 250
_DIGEST_BYTES = 16
_FOLLOWS = ("user", "assistant")
"""Roles of a message that a head may end before: no system prompt, and none that is written in one piece with results of
tools before it."""


@dataclass(frozen=True)
class Head:
    """The kept rendering of a request's head.

    digests: [i] names the first i messages, with the tools and options. length: of them are known; ids [T]: theirs.
    """

    digests: Sequence[bytes]
    length: int
    ids: array[int]

    @property
    def question(self) -> int:
        """Index of the last question."""
        return len(self.digests) - 1


class KnownHeads:
    """The heads that were rendered last. Thread-safe."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._ids: OrderedDict[bytes, array[int]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, messages: Sequence[Message], tools: list[Message] | None, options: object) -> Head | None:
        """Returns the longest known head of a request; of length 0 if there is none. None for a request that has no
        head, or has what JSON cannot hold."""
        question = _last_question(messages)
        if question < 1:
            return None
        try:
            digest = _digest(b"", orjson.dumps([tools, options]))
            digests = [digest]
            for message in messages[:question]:
                digest = _digest(digest, orjson.dumps(message))
                digests.append(digest)
        except (TypeError, ValueError):
            return None
        with self._lock:
            for length in range(question, 0, -1):
                ids = self._ids.get(digests[length])
                if ids is not None and messages[length]["role"] in _FOLLOWS:
                    self._ids.move_to_end(digests[length])
                    return Head(digests, length, ids)
        return Head(digests, 0, array("i"))

    def keep(self, digest: bytes, ids: array[int]) -> None:
        with self._lock:
            if digest not in self._ids:
                self._ids[digest] = ids
                self._size += _bytes_of(ids)
            while self._size > self._limit:
                self._size -= _bytes_of(self._ids.popitem(last=False)[1])


def _last_question(messages: Sequence[Message]) -> int:
    """Index of the last text of a user that no template can take for a tool's result; -1 if there is none."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message["role"] == "user" and not text_of(message).lstrip().startswith("<tool_response>"):
            return index
    return -1


def _digest(before: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES, key=before).digest()


def _bytes_of(ids: array[int]) -> int:
    return len(ids) * ids.itemsize + _ENTRY_BYTES
