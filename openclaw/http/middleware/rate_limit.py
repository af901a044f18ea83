"""How many requests a minute one client may make."""

from __future__ import annotations

import math
import time
from collections import OrderedDict

REMEMBERED_CLIENTS = 10_000


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
        """0 when the request is allowed, else the seconds until it is."""
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
