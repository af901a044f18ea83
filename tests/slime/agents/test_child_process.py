"""Tests the shutdown of a program that serves over standard input and output."""

from __future__ import annotations

import asyncio
import signal
import sys

from slime.agents.child_process import end_child

OBEYS = "import sys; sys.stdin.read(); sys.exit(7)"
STAYS = "import time; time.sleep(3600)"


def end(program: str, seconds: float) -> int | None:
    async def run() -> int | None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdin=asyncio.subprocess.PIPE
        )
        await end_child(process, seconds)
        await end_child(process, seconds)  # a second call has no effect
        return process.returncode

    return asyncio.run(run())


def test_a_program_ends_by_itself_when_its_input_is_closed() -> None:
    assert end(OBEYS, 60.0) == 7


def test_a_program_that_does_not_end_is_killed() -> None:
    assert end(STAYS, 0.1) == -signal.SIGKILL
