"""Cache keys for the beginnings of a conversation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import orjson

from openclaw.types import Message

_DIGEST_BYTES = 16


def prefix_keys(messages: Sequence[Message]) -> list[bytes] | None:
    """Returns keys: [i] identifies the first i messages, as sent. Returns None if JSON cannot represent a message."""
    key = b""
    keys = [key]
    try:
        for message in messages:
            key = hashlib.blake2b(orjson.dumps(message), digest_size=_DIGEST_BYTES, key=key).digest()
            keys.append(key)
    except (TypeError, ValueError):
        return None
    return keys
