"""The reason why an answer stopped: the gateway's own limit, or a client that reads too slowly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from openclaw.engine.generation import Increment
from openclaw.errors import ClientError
from openclaw.formats.deltas import TextDelta
from openclaw.gateway.exchange import Chunk, Exchange
from openclaw.sessions.transcript import Transcript
from openclaw.types import NewTurn, TurnContext

HELLO = [{"role": "user", "content": "hello"}]


class Recorder:
    def __init__(self) -> None:
        self.turns: list[NewTurn] = []

    async def record(self, turn: NewTurn, began: float, pictures: object) -> None:
        self.turns.append(turn)


def exchange(recorder: Recorder, pause: float) -> Exchange:
    """Returns an exchange whose engine sends a token, waits `pause` seconds and sends another."""
    ids: list[int] = []

    async def run() -> AsyncGenerator[Increment, None]:
        for token in (7, 8):
            ids.append(token)
            yield Increment([token], [-1.0], [])
            await asyncio.sleep(pause)

    parser: Any = SimpleNamespace(
        begin=lambda ids, tools: None,
        feed=lambda ids: [TextDelta("content", str(one)) for one in ids],
        finish=list,
    )
    generation: Any = SimpleNamespace(
        run=run, ids=ids, log_probs=[-1.0, -1.0], spans=[(1, 0, 2)], finish_reason="stop", matched=None
    )
    request: Any = SimpleNamespace(stop=[], parallel_tool_calls=True, tools=None, sampling={}, pictures={})
    turn = TurnContext(completion_id="c", session_id="s", messages=HELLO, prompt_ids=[1], sampling={})
    return Exchange(
        request=request,
        turn=turn,
        transcript=Transcript.of(HELLO),
        generation=generation,
        parser=parser,
        recorder=recorder,  # type: ignore[arg-type]
        session_end=None,
        timeout=0.05,
    )


async def taken(chunk: Chunk) -> None:
    """A client that reads at once."""


async def never_taken(chunk: Chunk) -> None:
    raise TimeoutError("the client did not read")


@pytest.mark.parametrize(
    ("pause", "on_chunk", "error", "reason"),
    [(1.0, taken, ClientError, "timeout"), (0.0, never_taken, TimeoutError, "client_left")],
)
async def test_a_timeout_is_the_gateways_only_after_its_own_limit(
    pause: float, on_chunk: Callable[..., Any], error: type[Exception], reason: str
) -> None:
    recorder = Recorder()
    with pytest.raises(error):
        await exchange(recorder, pause).run(on_chunk)
    assert [(str(turn.state), turn.state_reason) for turn in recorder.turns] == [("aborted", reason)]
