"""Subprocesses that communicate over standard input and output."""

from __future__ import annotations

import asyncio
import contextlib


async def end_child(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Closes a program's input, and kills it if it has not exited after `seconds`; returns once it has."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
