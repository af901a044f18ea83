"""From a checked request to an exchange that can run: session, parent turn, prompt ids, limits."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any, Literal

import orjson

from openclaw.common.messages import text_of
from openclaw.engine.client import Engines
from openclaw.engine.generation import EngineRequest
from openclaw.errors import ClientError
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.template_probe import probe
from openclaw.formats.tokenizer import Tokenizer
from openclaw.gateway.caller import Origin
from openclaw.gateway.chat_request import ChatRequest
from openclaw.gateway.exchange import Exchange
from openclaw.gateway.idempotency import Tries, Try
from openclaw.gateway.recorder import Recorder
from openclaw.sessions.transcript import Transcript, next_state
from openclaw.settings import Settings
from openclaw.types import Message, Turn, TurnState

log = logging.getLogger(__name__)

DEFAULT_TEMPERATURE = 0.6
LARGE_HISTORY_CHARACTERS = 20_000
"""Of messages and tools as JSON: from here on a prompt is rendered in a thread, so that other streams go on."""
_BRIDGED = (TurnState.CAPTURED, TurnState.ANSWERED, TurnState.JUDGED, TurnState.UNTRAINABLE)


class Turns:
    """One stream begins in a round of the event loop: of many that are asked for at once the first is with the engine
    before the last is read, and those under way go on in between."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        """Returns when it is the caller's turn."""
        async with self._lock:
            await asyncio.sleep(0)


class Gateway:
    """Everything that requests share. `recorder` is None when nothing is recorded.

    Raises ConfigError when the model folder cannot be served.
    """

    def __init__(self, settings: Settings, engines: Engines, recorder: Recorder | None) -> None:
        folder = ModelFolder.read(settings.model_folder)
        self.settings = settings
        self.engines = engines
        self.recorder = recorder
        self._tries = recorder.tries if recorder else Tries()
        self._turns = Turns()
        self.tokenizer = Tokenizer(folder.path)
        self.format = ChatFormat(folder, self.tokenizer)
        if not self.tokenizer.read_text_as_plain(lambda: probe(self.format)):
            log.warning("this model's template needs special tokens in texts: a message can spell them out")
        self.model_name = settings.model_name
        self.context_length = min(settings.context_length or folder.context_length, folder.context_length)
        own = settings.temperature if settings.temperature is not None else folder.temperature
        self._temperature = DEFAULT_TEMPERATURE if own is None else own

    async def prepare(self, request: ChatRequest, origin: Origin, kind: str = "chatcmpl-") -> Exchange:
        """Everything before the first token. Its parent turn is told what followed it. `kind` is the beginning
        of the exchange's id. Raises ClientError and, where the store fails, StoreError."""
        if request.stream:
            await self._turns.take()
        self._check(request)
        recorder = self.recorder if origin.train else None
        transcript = Transcript.of(request.messages)
        found = None
        if recorder:
            found = await recorder.find_parent(request.messages, transcript, origin.scope, origin.person)
        parent, start = found if found else (None, 0)
        prompt_ids, mode = await self._prompt(request, parent, start)
        limit = self._room(request, len(prompt_ids))
        first = self._tries.first(origin.attempt) if request.n == 1 and not request.top_log_probs else None
        unique = first.turn_id if first else uuid.uuid4().hex
        session_id = first.session_id if first else origin.scope or (parent.session_id if parent else unique)
        if recorder and parent and origin.turn_type == "main":
            followed = next_state(request.messages, start)
            if followed:
                recorder.answer_soon(parent, followed)
        sampling = {"temperature": self._temperature, **request.sampling}
        request.sampling.setdefault("temperature", self._temperature)
        engine_request = EngineRequest(
            id=f"chatcmpl-{unique}",
            prompt_ids=prompt_ids,
            max_new_tokens=limit,
            sampling={**sampling, "stop": request.stop} if request.stop else sampling,
            stop_ids=frozenset(self.format.stop_ids),
            log_probs=recorder is not None or request.log_probs or request.return_token_ids,
            top_log_probs=request.top_log_probs,
        )
        if first:
            engine_request, prompt_ids = first.request, first.request.prompt_ids
        return Exchange(
            id=kind + unique,
            request=request,
            session_id=session_id,
            turn_type=origin.turn_type,
            person=origin.person,
            parent=parent,
            transcript=transcript,
            prompt_ids=prompt_ids,
            render_mode=mode,
            sampling={
                **engine_request.sampling,
                "max_new_tokens": limit,
                "enable_thinking": request.thinking,
            },
            generation=self._tries.begin(
                origin.attempt, Try(self.engines, engine_request, session_id, unique, first)
            ),
            parser=self.format.parser(tools=request.tools is not None),
            recorder=recorder,
            policy_id=self.settings.policy_id,
            fingerprints=(self.tokenizer.fingerprint, self.format.fingerprint),
            session_end=self.recorder if origin.done else None,
            timeout=self.settings.request_timeout,
        )

    async def count(self, request: ChatRequest) -> int:
        """Tokens of a request's prompt. Raises ClientError."""
        self._check(request)
        return len(await self._rendered(request))

    def _check(self, request: ChatRequest) -> None:
        if request.model is not None:
            self.check_model(request.model)
        if len(request.messages) > self.settings.max_messages:
            message = (
                f"messages: at most {self.settings.max_messages} in one request, not {len(request.messages)}"
            )
            raise ClientError(message, "messages", "too_many_messages")

    def check_model(self, name: str) -> None:
        """Raises ClientError (404) for a model that is not served here."""
        if name != self.model_name:
            message = f"the model {name!r} does not exist; this server has {self.model_name!r}"
            raise ClientError(message, "model", "model_not_found", 404)

    def _room(self, request: ChatRequest, prompt_tokens: int) -> int:
        """How many tokens the answer may have. Raises ClientError when the prompt fills the context."""
        room = self.context_length - prompt_tokens
        if room < 1:
            message = (
                f"the messages are {prompt_tokens} tokens long; this model's context is "
                f"{self.context_length} tokens, prompt and answer together: shorten the messages"
            )
            raise ClientError(message, "messages", "context_length_exceeded")
        return min(room, request.max_tokens or self.settings.max_tokens_default or room)

    async def _prompt(
        self, request: ChatRequest, parent: Turn | None, start: int
    ) -> tuple[list[int], Literal["full", "bridge"]]:
        if parent is not None and _continues(request, parent, start):
            bridged = self.format.bridge(
                parent.prompt_ids,
                parent.completion_ids,
                request.messages[start:],
                request.tools,
                request.thinking,
            )
            if bridged is not None:
                return bridged, "bridge"
        return await self._rendered(request), "full"

    async def _rendered(self, request: ChatRequest) -> list[int]:
        wanted = request.messages, request.tools, request.thinking
        if len(orjson.dumps(wanted)) < LARGE_HISTORY_CHARACTERS:
            return self.format.render(*wanted)
        return await asyncio.to_thread(self.format.render, *wanted)


def _continues(request: ChatRequest, parent: Turn, start: int) -> bool:
    """Whether a request is its parent turn, unchanged to the letter, and new messages behind it."""
    if parent.state not in _BRIDGED or parent.sampling.get("enable_thinking") != request.thinking:
        return False
    same = parent.tools == request.tools and parent.messages == request.messages[: start - 1]
    return (
        same
        and start < len(request.messages)
        and _same_answer(parent.response_message, request.messages[start - 1])
    )


def _same_answer(stored: Message, sent: Message) -> bool:
    def told(message: Message) -> tuple[str, list[Any]]:
        calls = [call["function"] for call in message.get("tool_calls") or []]
        return text_of(message), calls

    return told(stored) == told(sent)
