"""Limits for each client: requests a minute, wrong keys a minute, open requests and their bytes."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakValueDictionary

from openclaw.errors import ClientError

REMEMBERED_CLIENTS = 10_000
WRONG_KEYS_A_MINUTE = 10
"""Wrong admin keys that one address may send in a minute."""
RETRY_SECONDS = 1.0
IPV6_NETWORK_BITS = 64
"""Prefix length of the IPv6 network that is counted as one client."""


def network_of(address: str) -> str:
    """Returns the address of a client for limits: an IPv4 address, or the network of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed), IPV6_NETWORK_BITS), strict=False))


class RateLimit:
    """A token bucket for each client.

    Args:
        per_minute: requests a minute, and the most in one burst; 0: no limit.
    """

    def __init__(self, per_minute: float) -> None:
        self._size = max(per_minute, 1.0)
        self._per_second = per_minute / 60
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Takes a token. Returns 0 if the request is allowed, else the seconds until the next token."""
        if not self._per_second:
            return 0.0
        tokens = self._tokens(client)
        self._buckets.pop(client, None)
        self._buckets[client] = (tokens - 1 if tokens >= 1 else tokens, time.monotonic())
        if len(self._buckets) > REMEMBERED_CLIENTS:
            self._buckets.popitem(last=False)
        return self._seconds(tokens)

    def wait(self, client: str) -> float:
        """Returns the seconds until the next token, 0 if there is one, without taking it."""
        return self._seconds(self._tokens(client)) if self._per_second else 0.0

    def _tokens(self, client: str) -> float:
        now = time.monotonic()
        tokens, filled = self._buckets.get(client, (self._size, now))
        return min(self._size, tokens + (now - filled) * self._per_second)

    def _seconds(self, tokens: float) -> float:
        return 0.0 if tokens >= 1 else math.ceil((1 - tokens) / self._per_second)


class Guesses:
    """Limits the guessing of keys.

    After too many wrong keys, all keys from that address are rejected for a while, even the right one. Users of this
    machine are counted separately, so that none can lock out another.
    """

    def __init__(self, per_minute: float = WRONG_KEYS_A_MINUTE) -> None:
        self._limit = RateLimit(per_minute)

    def check(self, address: str, user: int | None = None) -> None:
        """Raises ClientError (429) after too many wrong keys from this address.

        Args:
            user: user id of a client on this machine; None for others.
        """
        if wait := self._limit.wait(_guesser(address, user)):
            raise ClientError(
                f"too many wrong admin keys from this address; try again in {wait:g} seconds",
                code="too_many_wrong_keys", status=429, kind="rate_limit_error", retry_after=wait,
            )  # fmt: skip

    def count(self, address: str, user: int | None = None) -> None:
        """Counts a wrong key; arguments as in `check`."""
        self._limit.take(_guesser(address, user))


def _guesser(address: str, user: int | None) -> str:
    return network_of(address) if user is None else f"{network_of(address)} user {user}"


@dataclass(eq=False)
class Share:
    """Open requests and bytes of one client, with their limits (0: no limit)."""

    most_requests: int
    most_bytes: int
    requests: int = 0
    bytes: int = 0

    def check(self, more: int = 0) -> None:
        """Raises ClientError (429) if `more` additional requests would exceed a limit."""
        for have, most, what in (
            (self.requests + more, self.most_requests, "open requests (MAX_OPEN_REQUESTS)"),
            (self.bytes, self.most_bytes, "bytes in open requests (MAX_OPEN_BYTES)"),
        ):
            if most and have > most:
                raise ClientError(
                    f"Too many requests: this key or address has more than {most} {what}; try again when one ends",
                    code="too_many_open_requests", status=429, kind="rate_limit_error", retry_after=RETRY_SECONDS,
                )  # fmt: skip


class Shares:
    """The shares of all clients that have open requests. Idle clients use no memory."""

    def __init__(self, most_requests: int, most_bytes: int) -> None:
        self._most = most_requests, most_bytes
        self._open: WeakValueDictionary[str, Share] = WeakValueDictionary()

    def of(self, client: str) -> Share:
        """Returns the share of a client; it exists while one of its requests uses it."""
        share = self._open.get(client)
        if share is None:
            share = self._open[client] = Share(*self._most)
        return share
