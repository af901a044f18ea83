"""Prepares the exchange of a validated request: session, parent turn, prompt ids, limits.

A person's remembered preferences are added after the last user message, where distillation also inserts the teacher's
hint. Later prompts of a conversation begin with the ids of the earlier ones, so each preference is added only once. A
preference is omitted if the conversation already states it, or if the person asks for another form there.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import orjson

from openclaw.common.messages import Picture, picture_parts, text_of, user_texts_in
from openclaw.common.wish_themes import is_overridden
from openclaw.engine.adapters import Adapter
from openclaw.engine.client import EngineClient
from openclaw.engine.generation import EngineRequest, SentPicture
from openclaw.errors import ClientError, PromptTooLongError
from openclaw.formats.rendering import ChatFormat, ModelFolder, RawPrompt
from openclaw.formats.template_probe import probe
from openclaw.formats.tokenizer import SURELY_READ, Tokenizer, TooManyTokens
from openclaw.gateway.adapter_versions import adapters_of
from openclaw.gateway.caller import Caller
from openclaw.gateway.chat_request import (
    LARGE_HISTORY_CHARACTERS,
    ChatRequest,
    check_number,
    is_large,
)
from openclaw.gateway.exchange import Exchange
from openclaw.gateway.model_names import ModelNames
from openclaw.gateway.pictures import CheckedPictures, check_whole
from openclaw.gateway.recorder import Recorder
from openclaw.gateway.running import (
    Admission,
    InFlight,
    RunningAnswers,
    SharedGeneration,
    Use,
    UsesInProgress,
)
from openclaw.gateway.spans import spans_of
from openclaw.gateway.trained_adapters import TrainedAdapters
from openclaw.methods.hinted_prompt import with_memory
from openclaw.sessions.transcript import KnownHistories, Parent, Transcript, next_state, same_answer
from openclaw.settings import Settings
from openclaw.types import (
    DEFAULT_TRAINER,
    FROZEN_BASE,
    OF_ADAPTER,
    Message,
    PlacedPicture,
    RenderMode,
    Turn,
    TurnContext,
    TurnState,
    policy_of,
)

log = logging.getLogger(__name__)

DEFAULT_TEMPERATURE = 0.6
READ_AT_MOST = 2
"""Multiple of the context length at which the tokenization of a prompt stops."""
LARGE_AT_A_TIME = 2
"""Number of threads that render large prompts."""
_BRIDGED = (TurnState.CAPTURED, TurnState.ANSWERED, TurnState.JUDGED, TurnState.UNTRAINABLE)
"""States of a parent turn whose ids the next prompt may begin with."""
_LOOKED_AT = 16
"""Number of newest user messages that are searched for requests that override a preference."""

T = TypeVar("T")


@dataclass(frozen=True)
class Prompt:
    """Rendered prompt ids [T], and the remembered preferences and pictures in them."""

    ids: list[int]
    mode: RenderMode
    memory: Sequence[str] | None = None
    pictures: Sequence[PlacedPicture] = ()


class Gateway:
    """State shared by all requests.

    Args:
        recorder: stores turns; None if no turns are stored.

    Raises:
        ConfigError: the model folder cannot be served.
    """

    def __init__(self, settings: Settings, engines: EngineClient, recorder: Recorder | None) -> None:
        folder = ModelFolder.read(settings.model_folder)
        self.settings = settings
        self.engines = engines
        self.recorder = recorder
        self._in_flight = recorder.in_flight if recorder else InFlight()
        self.uses = recorder.uses if recorder else UsesInProgress()
        self._admission = Admission()
        self._histories = KnownHistories()
        self._checked = CheckedPictures()
        self._large = ThreadPoolExecutor(LARGE_AT_A_TIME, "large-prompt")
        self.running = RunningAnswers(settings.max_running)
        self.tokenizer = Tokenizer(folder.path)
        self.format = ChatFormat(folder, self.tokenizer)
        if not self.tokenizer.read_text_as_plain(lambda: probe(self.format)):
            log.warning(
                "the chat template of this model needs special tokens in texts, so messages of clients can contain them"
                " too"
            )
        self.model_name = settings.model_name
        self.adapters = adapters_of(settings)
        self.trained = TrainedAdapters(settings)
        adapters = self.adapters | self.trained.adapters
        self.names = ModelNames(settings.model_name, adapters, settings.key_names, settings.strict_model_name)
        self.spans = spans_of(settings)
        self.context_length = min(settings.context_length or folder.context_length, folder.context_length)
        configured = settings.temperature if settings.temperature is not None else folder.temperature
        self._temperature = DEFAULT_TEMPERATURE if configured is None else configured

    @property
    def sees(self) -> bool:
        """Returns whether the model reads pictures."""
        return self.format.pictures is not None

    async def prepare(self, request: ChatRequest, caller: Caller, kind: str = "chatcmpl-") -> Exchange:
        """Returns the exchange of a request, ready to be sampled, and stores the next state of its parent turn.

        Args:
            kind: prefix of the completion id.

        Raises:
            ClientError: the request is invalid, or too long.
            StoreError: the store cannot be read.
        """
        people = set() if caller.person is None else {caller.person}
        use = self.uses.begin(Use(people, caller.scope, began=caller.began))
        try:
            return await self._prepared(request, caller, kind, use)
        except BaseException:
            use.end()
            raise

    async def _prepared(self, request: ChatRequest, caller: Caller, kind: str, use: Use) -> Exchange:
        """Does the work of `prepare`. `use` ends with the answer."""
        if request.stream:
            await self._admission.wait()
        adapter = self.names.adapter(request.model, caller.asker.key_name)
        check_number(request, self.settings.max_messages)
        await self._check_length(request)
        request = await self._with_pictures(request)
        temperature = max(
            request.sampling.get("temperature", self._temperature), self.settings.min_temperature
        )
        request = replace(request, sampling={**request.sampling, "temperature": temperature})
        transcript = await self._transcript(request)
        recorder = self.recorder if caller.train else None
        parent = await _find_parent(recorder, request, transcript, caller)
        trained = adapter.name if adapter is not None and adapter.trained else None
        preferences = await active_preferences(self.settings, self.recorder, request, caller, trained)
        prompt = await self._render(request, parent, preferences)
        live_adapter = None if adapter is None else self.trained.live(adapter)
        generation = self._join_or_begin(request, caller, parent, prompt, recorder is not None, live_adapter)
        use.extend(generation.session_id, None if parent is None else parent.turn.person)
        if recorder and parent and caller.turn_type == "main":
            recorder.answer_soon(parent.turn, next_state(request.messages, parent.start))
        return Exchange(
            request=request,
            turn=self._turn(request, caller, parent, generation, kind),
            transcript=transcript,
            generation=generation,
            parser=self.format.parser(tools=request.tools is not None),
            recorder=recorder,
            session_end=self.recorder if caller.done else None,
            timeout=self.settings.request_timeout,
            began=use.began,
            use=use,
            asker=caller.asker,
            spans=self.spans,
            model=self.names.of(adapter),
            untrained=self._untrained(adapter),
            known_tokens=_length(parent) if self.settings.key_names else None,
        )

    def _untrained(self, adapter: Adapter | None) -> str | None:
        """Returns the reason why this run does not train on the answers of a model; None if it does."""
        if adapter is None:
            return FROZEN_BASE if self.trained.adapters else None
        return None if adapter.trained else OF_ADAPTER

    async def _with_pictures(self, request: ChatRequest) -> ChatRequest:
        """Returns the request with all its pictures: those of a stored conversation are read from the store. Raises
        ClientError for a damaged picture, or one that is no longer stored."""
        names = dict.fromkeys(part["sha256"] for part in picture_parts(request.messages))
        if not names:
            return request
        for name, picture in self._checked.unknown(request.pictures).items():
            await self._in_thread(check_whole, picture)
            self._checked.add(name)
        pictures = dict(request.pictures)
        if self.recorder is not None and (stored := names.keys() - pictures.keys()):
            pictures |= await self.recorder.pictures(stored)
        if names.keys() - pictures.keys():
            message = "messages: a picture of this conversation is no longer stored; send it again"
            raise ClientError(message, "messages", "picture_not_found", 404)
        return replace(request, pictures=pictures)

    async def _transcript(self, request: ChatRequest) -> Transcript:
        """Returns the transcript of a request. Long new parts of a history are processed in a thread."""
        cached = self._histories.known(request.prefixes)
        compute = self._histories.transcript
        if is_large(request.messages[cached[0] :]):
            return await self._in_thread(compute, request.messages, request.prefixes, cached)
        return compute(request.messages, request.prefixes, cached)

    async def count(self, request: ChatRequest) -> int:
        """Returns the number of tokens of a request's prompt. Raises ClientError."""
        return len(await self.prompt_ids(request))

    async def prompt_ids(self, request: ChatRequest) -> list[int]:
        """Returns the prompt ids [T] of a request, rendered without stored turns and preferences. Raises ClientError."""
        if request.model is not None and not self.names.is_adapter(request.model):
            self.names.adapter(request.model, None)
        check_number(request, self.settings.max_messages)
        await self._check_length(request)
        return await self._rendered(request)

    async def _check_length(self, request: ChatRequest) -> None:
        """Raises ClientError if messages and tools certainly exceed the context length, before the prompt is rendered.
        Assistant messages are not counted, because templates omit their reasoning."""
        if isinstance(request.messages[0], RawPrompt):
            return
        texts = [text_of(message) for message in request.messages if message["role"] != "assistant"]
        texts += [orjson.dumps(request.tools).decode()] if request.tools else []
        length = sum(map(len, texts))
        if length > SURELY_READ * self.context_length and await self._in_thread(
            self.tokenizer.exceeds, texts, self.context_length
        ):
            raise PromptTooLongError(self.context_length + 1, self.context_length, length)

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        """Runs a function in one of the threads for large prompts, so that it does not block other streams."""
        return await asyncio.get_running_loop().run_in_executor(self._large, function, *args)

    def _room(self, request: ChatRequest, prompt_tokens: int) -> int:
        """Returns the largest number of tokens of the answer. Raises ClientError if the prompt fills the context."""
        room = self.context_length - prompt_tokens
        if room < 1:
            raise PromptTooLongError(prompt_tokens, self.context_length)
        return min(room, request.max_tokens or self.settings.max_tokens_default or room)

    async def _render(
        self, request: ChatRequest, parent: Parent | None, preferences: Sequence[str] | None
    ) -> Prompt:
        """Returns the prompt. Preferences are omitted if they would leave no room for the answer."""
        prompt = await self._with_preferences(request, parent, preferences)
        if prompt.memory and len(prompt.ids) + (request.max_tokens or 1) > self.context_length:
            return await self._full(request, [])
        return prompt

    async def _with_preferences(
        self, request: ChatRequest, parent: Parent | None, preferences: Sequence[str] | None
    ) -> Prompt:
        """Returns the prompt with all preferences that apply. It begins with the ids of the parent turn if possible."""
        unstated = not_yet_stated(preferences, request.messages) if preferences else []
        new_messages = request.messages[parent.start :] if parent is not None else []
        if (
            parent is not None
            and _continues(request, parent)
            and prefix_still_valid(parent.turn, preferences, new_messages)
        ):
            new, in_prompt = inject(new_messages, unstated, parent.turn.memory or ())
            prompt_parts = (
                parent.turn.prompt_ids,
                parent.turn.completion_ids,
                new,
                request.tools,
                request.thinking,
            )
            if sum(len(text_of(message)) for message in new) < LARGE_HISTORY_CHARACTERS:
                bridged = self.format.bridge(*prompt_parts)
            else:
                bridged = await self._in_thread(self.format.bridge, *prompt_parts)
            if bridged is not None:
                pictures = [*parent.turn.pictures, *self.format.placed(bridged, new)]
                return Prompt(bridged, "bridge", None if preferences is None else in_prompt, pictures)
        if unstated:
            request = replace(request, messages=with_memory(request.messages, unstated))
        return await self._full(request, None if preferences is None else unstated)

    async def _full(self, request: ChatRequest, memory: Sequence[str] | None) -> Prompt:
        ids = await self._rendered(request)
        return Prompt(ids, "full", memory, self.format.placed(ids, request.messages))

    async def _rendered(self, request: ChatRequest) -> list[int]:
        """Returns the ids [T] of the whole history. Raises ClientError if the prompt is too long."""
        prompt_parts = request.messages, request.tools, request.thinking
        head = self.format.known_head(*prompt_parts, request.prefixes)
        new = prompt_parts if head is None or not head.length else request.messages[head.length :]
        length = len(orjson.dumps(new))
        if length < LARGE_HISTORY_CHARACTERS:
            return self.format.render(*prompt_parts, head=head)
        try:
            return await self._in_thread(
                self.format.render, *prompt_parts, READ_AT_MOST * self.context_length, head
            )
        except TooManyTokens as error:
            least, length = READ_AT_MOST * self.context_length + 1, len(orjson.dumps(prompt_parts))
            raise PromptTooLongError(least, self.context_length, length) from error

    def _join_or_begin(
        self,
        request: ChatRequest,
        caller: Caller,
        parent: Parent | None,
        prompt: Prompt,
        recorded: bool,
        adapter: Adapter | None,
    ) -> SharedGeneration:
        """Returns the generation of the answer. A retry follows the generation of a first attempt that still runs.
        Raises ClientError if the prompt fills the context."""
        limit = self._room(request, len(prompt.ids))
        first = self._in_flight.find(caller.key) if request.n == 1 and not request.top_log_probs else None
        if first is not None:
            engine_request, session_id, turn_id = first.request, first.session_id, first.turn_id
            mode, memory = first.mode, first.memory
        else:
            mode, memory = prompt.mode, None if prompt.memory is None else list(prompt.memory)
            turn_id = uuid.uuid4().hex
            session_id = caller.scope or (parent.turn.session_id if parent else turn_id)
            engine_request = EngineRequest(
                id=f"chatcmpl-{turn_id}",
                prompt_ids=prompt.ids,
                max_new_tokens=limit,
                sampling={**request.sampling, "stop": request.stop} if request.stop else request.sampling,
                stop_ids=frozenset(self.format.stop_ids),
                log_probs=recorded or request.log_probs or request.return_token_ids,
                top_log_probs=request.top_log_probs,
                join_key=caller.key.digest.hex() if request.n == 1 else None,
                repeated=caller.key.repeated,
                adapter=adapter,
                call_id=self.format.family.call_id if request.tools and not request.forced_tool else None,
                pictures=_sent(prompt.pictures, request.pictures),
            )
        places = first.pictures if first is not None else prompt.pictures
        generation = SharedGeneration(
            self.engines, engine_request, session_id, turn_id, first, mode, memory, places
        )
        return self._in_flight.add(caller.key, generation)

    def _turn(
        self,
        request: ChatRequest,
        caller: Caller,
        parent: Parent | None,
        generation: SharedGeneration,
        kind: str,
    ) -> TurnContext:
        engine_request = generation.request
        limits = {"max_new_tokens": engine_request.max_new_tokens, "enable_thinking": request.thinking}
        return TurnContext(
            id=generation.turn_id,
            completion_id=kind + generation.turn_id,
            session_id=generation.session_id,
            messages=request.messages,
            tools=request.tools,
            prompt_ids=engine_request.prompt_ids,
            sampling={**engine_request.sampling, **limits},
            render_mode=generation.mode,
            turn_type=caller.turn_type,
            person=caller.person,
            key_name=caller.asker.key_name,
            parent_id=parent.turn.id if parent else None,
            group_id=caller.group,
            task_id=caller.task,
            memory=generation.memory,
            pictures=generation.pictures,
            source=caller.source,
            policy_id=policy_of(
                self.settings.policy_id, engine_request.adapter.name if engine_request.adapter else None
            ),
            tokenizer_fingerprint=self.tokenizer.fingerprint,
            template_fingerprint=self.format.fingerprint,
        )


def _sent(places: Sequence[PlacedPicture], pictures: Mapping[str, Picture]) -> tuple[SentPicture, ...]:
    return tuple(SentPicture(one.start, one.length, pictures[one.sha256].url()) for one in places)


def _length(parent: Parent | None) -> int:
    """Returns the number of tokens of a turn with its answer; 0 for None."""
    return 0 if parent is None else len(parent.turn.prompt_ids) + len(parent.turn.completion_ids)


async def _find_parent(
    recorder: Recorder | None, request: ChatRequest, transcript: Transcript, caller: Caller
) -> Parent | None:
    if recorder is None:
        return None
    return await recorder.find_parent(request.messages, transcript, caller.scope, caller.asker)


def _continues(request: ChatRequest, parent: Parent) -> bool:
    """Returns whether a request consists of its unchanged parent turn and new messages, with the same tools and
    template options."""
    turn, start = parent.turn, parent.start
    if turn.state not in _BRIDGED or turn.sampling.get("enable_thinking") != request.thinking:
        return False
    is_same_prompt = turn.tools == request.tools and turn.messages == request.messages[: start - 1]
    return (
        is_same_prompt
        and start < len(request.messages)
        and same_answer(turn.response_message, request.messages[start - 1], to_the_letter=True)
    )


async def active_preferences(
    settings: Settings,
    recorder: Recorder | None,
    request: ChatRequest,
    caller: Caller,
    adapter: str | None = None,
) -> list[str] | None:
    """Returns the remembered preferences of the caller for the base model, or for a trained adapter, oldest first.

    Returns None if memory is off, or the request opts out, is a side turn, names no person, or names the holder of
    another key. Raises StoreError.
    """
    if not settings.memory or recorder is None or not caller.memory or caller.turn_type != "main":
        return None
    if caller.person is None or caller.asker.claims or isinstance(request.messages[0], RawPrompt):
        return None
    return await recorder.remembered(caller.person, caller.asker, policy_of(DEFAULT_TRAINER, adapter))


def not_yet_stated(wishes: Sequence[str], messages: Sequence[Message]) -> list[str]:
    """Returns the preferences that must be added to the prompt of a conversation.

    Omitted are preferences that a user message states verbatim, and those that a user message overrides by asking for
    another form.
    """
    user_texts = user_texts_in(messages)
    unstated = [wish for wish in wishes if not any(wish in text for text in user_texts)]
    return [wish for wish in unstated if not is_overridden(wish, *user_texts[-_LOOKED_AT:])]


def prefix_still_valid(turn: Turn, wishes: Sequence[str] | None, new: Sequence[Message]) -> bool:
    """Returns whether the next prompt may begin with the ids of a turn.

    This requires that all preferences in the turn's prompt are still remembered, and that the `new` messages override
    none of them.
    """
    in_prompt, user_texts = turn.memory or (), user_texts_in(new)
    return set(in_prompt) <= set(wishes or ()) and not any(
        is_overridden(wish, *user_texts) for wish in in_prompt
    )


def inject(
    new: list[Message], wishes: Sequence[str], in_prompt: Sequence[str]
) -> tuple[list[Message], list[str]]:
    """Adds preferences after the last user message of the `new` messages.

    Args:
        new: messages after the parent turn. If none is from the user, no preference is added.
        wishes: preferences to add.
        in_prompt: preferences that are already in the prompt of the parent turn.

    Returns:
        The messages, and all preferences in the resulting prompt.
    """
    missing = [wish for wish in wishes if wish not in in_prompt]
    if not missing or not any(message["role"] == "user" for message in new):
        return new, list(in_prompt)
    return with_memory(new, missing), [*in_prompt, *missing]
