"""Progress of a long measurement."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

EVERY_SECONDS = 10.0


@contextlib.asynccontextmanager
async def shown(
    answered: Callable[[], int], total: int, say: Callable[[str], None], every: float = EVERY_SECONDS
) -> AsyncIterator[None]:
    """Prints `answered()` of `total` every `every` seconds while the block runs."""
    began = answered()

    async def report() -> None:
        while True:
            await asyncio.sleep(every)
            say(f"  {answered() - began} of {total} answers")

    telling = asyncio.create_task(report())
    try:
        yield
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
