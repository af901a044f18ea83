"""A service that has one set of weights at a time: nothing is asked while another one is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Questions go side by side; a load waits for those under way and keeps the next ones waiting."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._under_way = 0
        self._loading = False

    @asynccontextmanager
    async def question(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._loading)
            self._under_way += 1
        try:
            yield
        finally:
            async with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._loading)
            self._loading = True
            try:
                await self._changed.wait_for(lambda: not self._under_way)
            except BaseException:
                self._loading = False
                self._changed.notify_all()
                raise
        try:
            yield
        finally:
            async with self._changed:
                self._loading = False
                self._changed.notify_all()
