"""A key-value store for torch.distributed, kept in a Ray actor."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import ray
from torch._C._distributed_c10d import Store

STORES: list[Store] = []
"""References that keep every store alive, because torch's C++ half calls the Python half and crashes if
Python has freed it."""


class BoardStore(Store):
    """Forwards all calls to the actor `Board` (`meeting.py`); called also by torch's threads.

    Raises:
        TimeoutError: a key was not set in time.
    """

    timeout: timedelta  # torch's default time-out

    def __init__(self, board: Any) -> None:
        super().__init__()
        self.board = board
        STORES.append(self)

    def set(self, key: str, value: str | bytes) -> None:  # type: ignore[override]
        ray.get(self.board.put.remote(key, _bytes(value)))

    def get(self, key: str) -> bytes:
        return self._find([key], self.timeout)[0]

    def add(self, key: str, number: int) -> int:
        total: int = ray.get(self.board.add.remote(key, number))
        return total

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:  # type: ignore[override]
        self._find(list(keys), self.timeout if timeout is None else timeout)

    def check(self, keys: list[str]) -> bool:
        return ray.get(self.board.find.remote(list(keys), 0.0)) is not None

    def compare_set(self, key: str, expected: str | bytes, value: str | bytes) -> bytes:  # type: ignore[override]
        stored: bytes = ray.get(self.board.exchange.remote(key, _bytes(expected), _bytes(value)))
        return stored

    def delete_key(self, key: str) -> bool:
        return bool(ray.get(self.board.remove.remote(key)))

    def num_keys(self) -> int:
        return int(ray.get(self.board.count.remote()))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return self._find(list(keys), self.timeout)

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:  # type: ignore[override]
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return False

    def clone(self) -> BoardStore:
        return self

    def _find(self, keys: list[str], limit: timedelta) -> list[bytes]:
        values: list[bytes] | None = ray.get(self.board.find.remote(keys, limit.total_seconds()))
        if values is None:
            raise TimeoutError(f"no rank has set {', '.join(keys)} within {limit}")
        return values


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
