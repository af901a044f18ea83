"""One request and its answer, which is sampled, parsed incrementally, and stored before it is reported as complete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from openclaw.engine.generation import Generation, Increment
from openclaw.errors import ClientError, PromptTooLongError
from openclaw.formats.deltas import AnswerParser, CallArguments, CallStart, Delta, TextDelta
from openclaw.formats.stop_strings import StopStrings
from openclaw.gateway.chat_request import ChatRequest
from openclaw.gateway.recorder import Recorder
from openclaw.gateway.running import Use
from openclaw.sessions.transcript import Transcript
from openclaw.store.rights import NAMELESS, Asker
from openclaw.types import Message, NewTurn, TurnContext, TurnState

OnChunk = Callable[["Chunk"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The output of one engine step: deltas for the client, and their tokens; None for text without new tokens."""

    deltas: list[Delta]
    increment: Increment | None


class Observer(Protocol):
    """Wraps the sampling of answers, for example for tracing."""

    async def around(
        self, exchange: Exchange, run: Callable[[OnChunk], Awaitable[Completion]], on_chunk: OnChunk
    ) -> Completion:
        """Calls `run` with `on_chunk` or a wrapper of it. Returns its result; raises its exceptions."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A prepared request, before its turn is stored.

    Attributes:
        turn: the turn without its answer.
        transcript: transcript of the turn's messages.
        generation: samples the answer.
        parser: parses the sampled tokens.
        recorder: stores the turn; None if it is not stored.
        session_end: records the end of the session; None if the session continues.
        timeout: seconds for the whole answer, including the wait for an engine.
        opening: ids at the end of the prompt that belong to the answer: the beginning of a required tool call.
        began: arrival of the request, in seconds of the monotonic clock.
        asker: sender of the request; only its turns expire when the session ends.
        spans: reports the answer to OpenTelemetry; None if it is not reported.
        model: name of the model or adapter that answers.
        untrained: reason why the turn is not trained; None if it is trained.
        known_tokens: most prompt tokens that may be reported as cached: those of the parent turn. More would reveal
            that other people have sent the same text. None for no limit, if the server has no named keys.
        use: ends with the answer; None if no deletion waits for it.
    """

    request: ChatRequest
    turn: TurnContext
    transcript: Transcript
    generation: Generation
    parser: AnswerParser
    recorder: Recorder | None
    session_end: Recorder | None
    timeout: float
    opening: tuple[int, ...] = ()
    began: float = field(default_factory=time.monotonic)
    asker: Asker = NAMELESS
    spans: Observer | None = None
    model: str = ""
    untrained: str | None = None
    known_tokens: int | None = None
    use: Use | None = None

    @property
    def cached(self) -> int:
        """Returns the number of prompt tokens that are reported as cached."""
        cached = self.generation.cached
        return cached if self.known_tokens is None else min(cached, self.known_tokens)

    def opened(self, opening: list[int], context_length: int) -> Exchange:
        """Returns this exchange with an answer that begins with the ids `opening`. Raises ClientError if prompt and
        opening fill the context."""
        prompt_ids = self.turn.prompt_ids + opening
        room = context_length - len(prompt_ids)
        if room < 1:
            raise PromptTooLongError(len(prompt_ids), context_length)
        generation = self.generation.with_prompt(prompt_ids, room)
        turn = replace(self.turn, prompt_ids=prompt_ids)
        return replace(self, turn=turn, opening=tuple(opening), generation=generation)

    def unfulfilled(self, answer: Completion) -> bool:
        """Returns whether the request requires a tool call and the answer contains no valid one."""
        return self.request.forced_tool is not None and not answer.tool_calls

    async def run(self, on_chunk: OnChunk) -> Completion:
        """Samples the answer, passes its chunks to `on_chunk`, and returns it after the turn is stored.

        If the caller is cancelled because the client disconnected, the tokens sampled so far are stored as an aborted
        turn.

        Raises:
            ClientError: the engine rejects the request, or the time-out has passed.
            StoreError: the turn cannot be stored.
        """
        try:
            if self.spans is None:
                return await self._run(on_chunk)
            return await self.spans.around(self, self._run, on_chunk)
        finally:
            self.end()

    def end(self) -> None:
        """Ends the use of the person's words, if the answer is complete or is never sampled."""
        if self.use is not None:
            self.use.end()

    async def _run(self, on_chunk: OnChunk) -> Completion:
        completion = Completion(self.request.stop, one_call=not self.request.parallel_tool_calls)
        try:
            async with asyncio.timeout(self.timeout) as limit:
                await self._sample(completion, on_chunk)
        except (asyncio.CancelledError, OSError) as error:
            if not (isinstance(error, TimeoutError) and limit.expired()):
                await asyncio.shield(self._store_aborted(completion, "client_left"))
                raise
            await self._store_aborted(completion, "timeout")
            message = f"Request timed out: the answer was not complete within {self.timeout:g} seconds"
            raise ClientError(message, code="timeout", status=504, kind="server_error") from error
        except ClientError:
            await self._store_aborted(completion, "engine_refused")
            raise
        except Exception:  # internal errors: the tokens are stored before the error is raised again
            await self._store_aborted(completion, "internal_error")
            raise
        completion.complete(self.generation.finish_reason or "stop")
        await self._store(self._finished(completion, *self._state()))
        return completion

    async def _sample(self, completion: Completion, on_chunk: OnChunk) -> None:
        prompt_ids = self.turn.prompt_ids
        self.parser.begin(prompt_ids[: len(prompt_ids) - len(self.opening)], self.request.tools)
        opened = completion.add(self.parser.feed(self.opening))
        try:
            async with aclosing(self.generation.run()) as increments:
                async for increment in increments:
                    deltas = opened + completion.add(self.parser.feed(increment.ids))
                    opened = []
                    await on_chunk(Chunk(deltas, increment))
                    if completion.has_enough:
                        break
        except ClientError as error:
            if "json_schema" not in self.request.sampling or error.status != 400:
                raise
            message = (
                f"response_format: this engine cannot enforce the schema ({error}); simplify it, or remove "
                "response_format and ask for JSON in the messages"
            )
            raise ClientError(message, "response_format", "unsupported_value") from error
        deltas = opened + completion.add(self.parser.finish()) + completion.finish(self.generation.matched)
        if deltas:
            await on_chunk(Chunk(deltas, None))

    async def _store_aborted(self, completion: Completion, reason: str) -> None:
        """Stores an interrupted turn. Its message contains what the client has received and may send back, without
        incomplete tool calls."""
        completion.complete("abort")
        sampled = bool(self.generation.ids)
        await self._store(self._finished(completion, TurnState.ABORTED, reason) if sampled else None)

    async def _store(self, turn: NewTurn | None) -> None:
        if self.recorder is not None and turn is not None:
            await self.recorder.record(turn, self.began, self.request.pictures)
        if self.session_end is not None:
            await self.session_end.end_session(self.turn.session_id, self.asker)

    def _finished(self, completion: Completion, state: TurnState, reason: str | None) -> NewTurn:
        return NewTurn(
            **vars(self.turn),
            response_message=completion.message(),
            completion_ids=self.generation.ids,
            completion_log_probs=self.generation.log_probs,
            version_spans=self.generation.spans,
            finish_reason=completion.finish_reason,
            transcript_digest=self.transcript.with_answer(completion.message()),
            state=state,
            state_reason=reason,
        )

    def _state(self) -> tuple[TurnState, str | None]:
        """Returns the state of a complete turn, and the reason if it is untrainable."""
        if self.turn.turn_type == "side":
            return TurnState.SIDE, None
        spans = self.generation.spans
        reason = None if self.generation.ids else "empty"
        if reason is None and (not spans or spans[0][1] != 0 or spans[-1][2] != len(self.generation.ids)):
            reason = "unknown_weight_version"
        reason = reason or self.untrained
        return (TurnState.CAPTURED, None) if reason is None else (TurnState.UNTRAINABLE, reason)


class Completion:
    """The part of the answer that the client has received.

    Args:
        stop: stop strings; the answer ends before the first one.
        one_call: whether the answer ends after its first tool call.
    """

    def __init__(self, stop: Sequence[str], one_call: bool = False) -> None:
        self._stop = StopStrings(stop) if stop else None
        self._one_call = one_call
        self._call: CallStart | None = None
        self._arguments: list[str] = []
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.tool_calls: list[dict[str, Any]] = []
        self.finish_reason: str = ""

    @property
    def has_enough(self) -> bool:
        """Returns whether all further output is ignored."""
        return self._one_call and bool(self.tool_calls)

    def add(self, deltas: list[Delta]) -> list[Delta]:
        """Adds deltas. Returns those that may be sent now; possible beginnings of stop strings are held back."""
        released = deltas if self._stop is None else self._stop.filter(deltas)
        return [delta for delta in released if self._record(delta)]

    def finish(self, matched: int | str | None) -> list[Delta]:
        """Returns the text that was held back as a possible beginning of a stop string.

        Args:
            matched: stop id or stop string that ended the answer, as reported by the engine.
        """
        if self._stop is None:
            return []
        held = self._stop.finish(matched if isinstance(matched, str) else None)
        return [delta for delta in held if self._record(delta)]

    def complete(self, reason: str) -> None:
        """Sets the finish reason: "tool_calls" for an answer with tool calls that ended with "stop"."""
        self.finish_reason = "tool_calls" if self.tool_calls and reason == "stop" else reason

    def message(self) -> Message:
        """Returns the answer as an assistant message, as the client will send it back."""
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

    def _record(self, delta: Delta) -> bool:
        """Adds a delta to the message. Returns False if it comes after the only allowed tool call."""
        if self.has_enough:
            return False
        if isinstance(delta, TextDelta):
            (self.content if delta.kind == "content" else self.reasoning).append(delta.text)
        elif isinstance(delta, CallStart):
            self._call, self._arguments = delta, []
        elif isinstance(delta, CallArguments):
            self._arguments.append(delta.text)
        elif self._call is not None:
            function = {"name": self._call.name, "arguments": "".join(self._arguments)}
            self.tool_calls.append({"id": self._call.id, "type": "function", "function": function})
        return True
