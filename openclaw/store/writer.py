"""One writer thread a process with group commit (signatures first; bodies follow)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from openclaw.store.rollout_store import RolloutStore

T = TypeVar("T")


class StoreWriter:
    """`turn = await writer.submit(lambda: store.record_turn(new_turn))`: runs in the writer thread, inside a group
    transaction; returns when that transaction is committed (durable). An exception of the function is raised to its
    own caller only. With `max_pending` functions queued, submit waits."""

    def __init__(self, store: RolloutStore, max_pending: int = 4096) -> None: ...
    async def submit(self, function: Callable[[], T]) -> T: raise NotImplementedError
    def run(self, function: Callable[[], T]) -> T: raise NotImplementedError   # the same for a plain thread
    def close(self) -> None: ...       # commits what is queued, then ends the thread; idempotent
