"""How much one client may ask for: depth of JSON, requests a minute."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from typing import Any

from openclaw.errors import ClientError

MAX_DEPTH = 100
"""Levels of objects and lists in a request body; a tool's JSON schema has perhaps ten."""
REMEMBERED_CLIENTS = 10_000


def check_depth(value: Any) -> None:
    """Raises ClientError for JSON that is nested more than MAX_DEPTH levels."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ClientError(f"the request body is nested more than {MAX_DEPTH} levels deep", code="invalid_json")


class RateLimit:
    """A bucket of requests for each client, filled evenly.

    Args:
        per_minute: requests that a client may make a minute, all at once too; 0: no limit.
    """

    def __init__(self, per_minute: float) -> None:
        self._size = max(per_minute, 1.0)
        self._per_second = per_minute / 60
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """0 when the client may go on, else the seconds after which it may."""
        if not self._per_second:
            return 0.0
        now = time.monotonic()
        tokens, filled = self._buckets.pop(client, (self._size, now))
        tokens = min(self._size, tokens + (now - filled) * self._per_second)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > REMEMBERED_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else math.ceil((1 - tokens) / self._per_second)
