"""One request and its answer: sampled, parsed as it comes, stored before it counts as finished."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from openclaw.api.schema import ChatRequest
from openclaw.errors import ClientError
from openclaw.generation import Generation, Increment
from openclaw.recorder import Recorder
from openclaw.records import NewTurn, Turn, TurnState
from openclaw.sessions import Message, Transcript
from openclaw.stop_strings import StopStrings
from openclaw.stream_parser import Delta, Qwen3StreamParser, TextDelta, ToolCall

OnPiece = Callable[["Piece"], Awaitable[None]]
FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step of the engine adds to the answer: deltas for the client and the tokens behind them."""

    deltas: list[Delta]
    increment: Increment | None


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request that is ready to run. Nothing was stored yet.

    recorder: None serves without storing. session_end: where the session ends with this turn, if the client
    said so.
    """

    id: str
    request: ChatRequest
    session_id: str
    turn_type: Literal["main", "side"]
    person: str | None
    parent: Turn | None
    transcript: Transcript
    prompt_ids: list[int]
    render_mode: Literal["full", "bridge"]
    sampling: dict[str, Any]
    generation: Generation
    parser: Qwen3StreamParser
    recorder: Recorder | None
    policy_id: str
    fingerprints: tuple[str, str]
    session_end: Recorder | None
    timeout: float
    created: float = field(default_factory=time.time)

    async def run(self, on_piece: OnPiece) -> Answer:
        """Sample the answer; `on_piece` gets it as it comes. The turn is durable when this returns.

        When the caller is cancelled (its client left), what was sampled is stored as aborted. Raises
        ClientError when the engine refuses or `timeout` seconds have passed, StoreError when the turn cannot
        be stored.
        """
        answer = Answer(StopStrings(self.request.stop))
        try:
            async with asyncio.timeout(self.timeout):
                await self._sample(answer, on_piece)
        except TimeoutError as error:
            await self._store_aborted(answer, "timeout")
            message = f"no complete answer within {self.timeout:g} seconds"
            raise ClientError(message, code="timeout", status=504, kind="server_error") from error
        except (asyncio.CancelledError, OSError):
            await asyncio.shield(self._store_aborted(answer, "client_left"))
            raise
        answer.complete(self.generation.finish_reason or "stop")
        await self._store(self._turn(answer))
        return answer

    async def _sample(self, answer: Answer, on_piece: OnPiece) -> None:
        async with aclosing(self.generation.run()) as increments:
            async for increment in increments:
                deltas = answer.add(self.parser.feed(increment.ids))
                await on_piece(Piece(deltas, increment))
        deltas = answer.add(self.parser.finish()) + answer.finish(self.generation.matched)
        if deltas:
            await on_piece(Piece(deltas, None))

    async def _store_aborted(self, answer: Answer, reason: str) -> None:
        answer.add(self.parser.finish())
        answer.complete("abort")
        await self._store(self._turn(answer, TurnState.ABORTED, reason) if self.generation.ids else None)

    async def _store(self, turn: NewTurn | None) -> None:
        if self.recorder is not None and turn is not None:
            await self.recorder.record(turn)
        if self.session_end is not None:
            await self.session_end.end_session(self.session_id)

    def _turn(self, answer: Answer, state: TurnState | None = None, reason: str | None = None) -> NewTurn:
        generation = self.generation
        if state is None:
            state, reason = self._state(answer)
        return NewTurn(
            id=self.id.rpartition("-")[2],
            completion_id=self.id,
            session_id=self.session_id,
            messages=self.request.messages,
            response_message=answer.message(),
            prompt_ids=self.prompt_ids,
            completion_ids=generation.ids,
            completion_log_probs=generation.log_probs,
            version_spans=generation.spans,
            sampling=self.sampling,
            finish_reason=answer.finish_reason,
            transcript_digest=self.transcript.with_answer(answer.message()),
            state=state,
            state_reason=reason,
            policy_id=self.policy_id,
            person=self.person,
            parent_id=self.parent.id if self.parent else None,
            turn_type=self.turn_type,
            tools=self.request.tools,
            render_mode=self.render_mode,
            tokenizer_fingerprint=self.fingerprints[0],
            template_fingerprint=self.fingerprints[1],
            created_at=self.created,
        )

    def _state(self, answer: Answer) -> tuple[TurnState, str | None]:
        """What becomes of a complete turn, and why it cannot be trained if it cannot."""
        if self.turn_type == "side":
            return TurnState.SIDE, None
        spans = self.generation.spans
        reason = self.request.untrainable() if self.generation.ids else "empty"
        if reason is None and (not spans or spans[0][1] != 0 or spans[-1][2] != len(self.generation.ids)):
            reason = "unknown_weight_version"
        return (TurnState.CAPTURED, None) if reason is None else (TurnState.UNTRAINABLE, reason)


class Answer:
    """The answer as the client reads it, growing."""

    def __init__(self, stop: StopStrings) -> None:
        self._stop = stop
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.tool_calls: list[dict[str, Any]] = []
        self.finish_reason: str = ""

    def add(self, deltas: list[Delta]) -> list[Delta]:
        """Take deltas in; returns those that the client may see now."""
        shown = self._stop.filter(deltas)
        for delta in shown:
            self._note(delta)
        return shown

    def finish(self, matched: int | str | None) -> list[Delta]:
        """Text that was held back because a stop string might have begun in it."""
        shown = self._stop.finish(matched if isinstance(matched, str) else None)
        for delta in shown:
            self._note(delta)
        return shown

    def complete(self, reason: str) -> None:
        self.finish_reason = "tool_calls" if self.tool_calls and reason == "stop" else reason

    def message(self) -> Message:
        """The assistant message that a client will send back."""
        content = "".join(self.content)
        message: Message = {
            "role": "assistant",
            "content": content if content or not self.tool_calls else None,
        }
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message

    def _note(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            (self.content if delta.kind == "content" else self.reasoning).append(delta.text)
        else:
            self.tool_calls.append(tool_call(delta))


def tool_call(call: ToolCall) -> dict[str, Any]:
    """A call in OpenAI's shape."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
