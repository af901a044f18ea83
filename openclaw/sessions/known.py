"""Caches digests of histories, so that a repeated history costs only its new messages."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

import orjson

from openclaw.common.messages import text_of
from openclaw.sessions.transcript import Chain, chained
from openclaw.types import Message

KEPT = 20_000
"""Most cached messages, each at its position in a history."""
_DIGEST_BYTES = 16


class TooMuchNew(Exception):
    """A history has more new text than allowed."""


class KnownHistories:
    """Caches results of `chained`. Thread-safe."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._following: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def chain(self, digest: bytes, message: Message) -> bytes:
        """Returns `chained`, cached."""
        key, following = self._find(digest, message)
        return self._keep(key, chained(digest, message)) if following is None else following

    def at_most(self, characters: int) -> Chain:
        """Returns `chained` for one history. Raises TooMuchNew after so many characters of new messages."""
        left = characters

        def chain(digest: bytes, message: Message) -> bytes:
            nonlocal left
            key, following = self._find(digest, message)
            if following is not None:
                return following
            left -= len(text_of(message))
            if left < 0:
                raise TooMuchNew
            return self._keep(key, chained(digest, message))

        return chain

    def _find(self, digest: bytes, message: Message) -> tuple[bytes | None, bytes | None]:
        """Returns (key of a message after a history, cached digest of both or None)."""
        try:
            data = orjson.dumps(message)
        except (TypeError, ValueError):  # a message that JSON cannot represent, from code inside this process
            return None, None
        key = hashlib.blake2b(data, digest_size=_DIGEST_BYTES, key=digest).digest()
        with self._lock:
            following = self._following.get(key)
            if following is not None:
                self._following.move_to_end(key)
        return key, following

    def _keep(self, key: bytes | None, following: bytes) -> bytes:
        if key is not None:
            with self._lock:
                self._following[key] = following
                if len(self._following) > self._kept:
                    self._following.popitem(last=False)
        return following
