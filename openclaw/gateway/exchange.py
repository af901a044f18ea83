"""One request and its answer: sampled, parsed as it comes, stored before it counts as finished."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from openclaw.engine.generation import Generation, Increment
from openclaw.errors import ClientError
from openclaw.formats.deltas import AnswerParser, CallArguments, CallStart, Delta, TextDelta
from openclaw.formats.stop_strings import StopStrings
from openclaw.gateway.chat_request import ChatRequest
from openclaw.gateway.recorder import Recorder
from openclaw.sessions.transcript import Transcript
from openclaw.types import Message, NewTurn, Turn, TurnState

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

    opening: ids at the end of the prompt that are the beginning of the answer (a tool call that was asked for).
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
    parser: AnswerParser
    recorder: Recorder | None
    policy_id: str
    fingerprints: tuple[str, str]
    session_end: Recorder | None
    timeout: float
    opening: tuple[int, ...] = ()
    created: float = field(default_factory=time.time)

    def opened(self, opening: list[int], context_length: int) -> Exchange:
        """This exchange with an answer that begins with these ids. Raises ClientError when the context has no
        room for them."""
        prompt_ids = self.prompt_ids + opening
        room = context_length - len(prompt_ids)
        if room < 1:
            message = (
                "the messages and the tool call that was asked for fill the context: shorten the messages"
            )
            raise ClientError(message, "messages", "context_length_exceeded")
        generation = self.generation.with_prompt(prompt_ids, room)
        return replace(self, prompt_ids=prompt_ids, opening=tuple(opening), generation=generation)

    async def run(self, on_piece: OnPiece) -> Answer:
        """Sample the answer; `on_piece` gets it as it comes. The turn is durable when this returns.

        When the caller is cancelled (its client left), what was sampled is stored as aborted. Raises
        ClientError when the engine refuses or `timeout` seconds have passed, StoreError when the turn cannot
        be stored.
        """
        answer = Answer(StopStrings(self.request.stop), one_call=not self.request.parallel_tool_calls)
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
        except ClientError:
            await self._store_aborted(answer, "engine_refused")
            raise
        except Exception:  # a fault of ours: the tokens are kept, and the fault is told
            await self._store_aborted(answer, "internal_error")
            raise
        answer.complete(self.generation.finish_reason or "stop")
        await self._store(self._turn(answer))
        return answer

    async def _sample(self, answer: Answer, on_piece: OnPiece) -> None:
        self.parser.begin(self.prompt_ids[: len(self.prompt_ids) - len(self.opening)], self.request.tools)
        opened = answer.add(self.parser.feed(self.opening))
        try:
            async with aclosing(self.generation.run()) as increments:
                async for increment in increments:
                    deltas = opened + answer.add(self.parser.feed(increment.ids))
                    opened = []
                    await on_piece(Piece(deltas, increment))
                    if answer.has_enough:
                        break
        except ClientError as error:
            if "json_schema" not in self.sampling:
                raise
            message = (
                f"response_format: this engine cannot keep to a grammar ({error}); serve the model with SGLang, "
                "or leave response_format out and ask for JSON in the messages"
            )
            raise ClientError(message, "response_format", "unsupported_value") from error
        deltas = opened + answer.add(self.parser.finish()) + answer.finish(self.generation.matched)
        if deltas:
            await on_piece(Piece(deltas, None))

    async def _store_aborted(self, answer: Answer, reason: str) -> None:
        if reason != "internal_error":  # the parser may be what failed
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
            id=self.id.replace("_", "-").rpartition("-")[2],
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
    """The answer as the client reads it, growing. `one_call`: it ends with its first tool call."""

    def __init__(self, stop: StopStrings, one_call: bool = False) -> None:
        self._stop = stop
        self._one_call = one_call
        self._call: CallStart | None = None
        self._arguments: list[str] = []
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.tool_calls: list[dict[str, Any]] = []
        self.finish_reason: str = ""

    @property
    def has_enough(self) -> bool:
        """Whether nothing that could still come would be passed on."""
        return self._one_call and bool(self.tool_calls)

    def add(self, deltas: list[Delta]) -> list[Delta]:
        """Take deltas in; returns those that the client may see now."""
        return [delta for delta in self._stop.filter(deltas) if self._note(delta)]

    def finish(self, matched: int | str | None) -> list[Delta]:
        """Text that was held back because a stop string might have begun in it."""
        held = self._stop.finish(matched if isinstance(matched, str) else None)
        return [delta for delta in held if self._note(delta)]

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

    def _note(self, delta: Delta) -> bool:
        """False for what comes after the only call that is wanted."""
        if self.has_enough:
            return False
        if isinstance(delta, TextDelta):
            (self.content if delta.kind == "content" else self.reasoning).append(delta.text)
        elif isinstance(delta, CallStart):
            self._call, self._arguments = delta, []
        elif isinstance(delta, CallArguments):
            self._arguments.append(delta.text)
        elif delta.complete and self._call is not None:
            function = {"name": self._call.name, "arguments": "".join(self._arguments)}
            self.tool_calls.append({"id": self._call.id, "type": "function", "function": function})
        return True
