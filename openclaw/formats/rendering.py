"""Renders messages to prompt ids, and creates parsers of answers, for the model family in config.json.

The package `renderers` renders the ids of chat templates, without transformers. If a client sends the history back
unchanged, the next prompt consists of the ids of the last turn (prompt and completion) and of the new messages.
"""

from __future__ import annotations

import hashlib
import json
import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from claw_base.files import read_object
from openclaw.common.messages import PICTURE, picture_parts, text_of
from openclaw.errors import ClientError, ConfigError
from openclaw.formats.chat_template import FolderTemplate, has_template
from openclaw.formats.deltas import AnswerParser
from openclaw.formats.families import (
    BY_MODEL_TYPE,
    TEMPLATE,
    Family,
    TemplateOptions,
    make_renderer,
    renderer_name,
)
from openclaw.formats.pictures import PictureFormat
from openclaw.formats.tokenizer import PieceTokenizer, Tokenizer, with_text_pieces_expanded
from openclaw.types import Message, PlacedPicture

KEPT_BYTES = 8 << 20
"""Most bytes of cached ids. A head of 12,000 tokens has 48 KB."""
_ENTRY_BYTES = 250
_DIGEST_BYTES = 16
_FOLLOWS = ("user", "assistant")
"""Roles of the message after a cached head. System prompts are rendered at the beginning, and consecutive tool results
together."""
KEPT_RENDERERS = 16
"""Most cached renderers, one for each set of template options."""
_WITH_PIECES = ("qwen3", "qwen3.5", "qwen3.6", "qwen3.8")
"""Renderers that never inspect the ids of a text, so that PieceTokenizer works. A test checks this."""
_WITH_HEADS = ("qwen3", "qwen3.5", "qwen3.6")
"""Renderers whose output allows caching as described in `KnownHeads`. Qwen3.8's does not: it adds a system prompt if
there is none."""
_FIRST_TOKEN = {"llama-3": "<|begin_of_text|>"}
"""By renderer: a token that all models of the family have, but not all models with its model_type."""


class RawPrompt(dict[str, Any]):
    """A text prompt with its ids [T], the only message of its request. It is stored as a user message with
    `"format": "raw"`."""

    def __init__(self, text: str, ids: list[int]) -> None:
        super().__init__(role="user", content=text, format="raw")
        self.ids = ids


@dataclass(frozen=True)
class ModelFolder:
    """Properties of a Hugging Face model folder.

    Attributes:
        renderer: name of the renderer, or TEMPLATE for the folder's own chat template.
        context_length: tokens.
        temperature: default temperature; None if the folder has none.
    """

    path: Path
    renderer: str
    context_length: int
    temperature: float | None

    @classmethod
    def read(cls, path: Path) -> ModelFolder:
        """Returns the properties of a folder. Raises ConfigError if it is not a model that can be served."""
        config = read_object(path / "config.json")
        if config is None:
            raise ConfigError(
                f"{path} is not a model: it has no readable config.json; use a Hugging Face model folder"
            )
        model_type = str(config.get("model_type"))
        renderer = renderer_name(model_type, path.resolve().name)
        if renderer is None or not _has_tokens_of(renderer, path):
            if not has_template(path):
                supported = ", ".join(sorted(BY_MODEL_TYPE))
                raise ConfigError(
                    f"{path}: the folder has no chat template, and model_type {model_type!r} is none of {supported}. "
                    "Base models have no chat template; use the chat (instruct) variant"
                )
            renderer = TEMPLATE
        text_config = config.get("text_config")
        nested = text_config if isinstance(text_config, dict) else {}
        length = config.get("max_position_embeddings", nested.get("max_position_embeddings"))
        if not isinstance(length, int) or length < 1:
            raise ConfigError(f"{path}/config.json: max_position_embeddings is missing")
        temperature = (read_object(path / "generation_config.json") or {}).get("temperature")
        return cls(path, renderer, length, float(temperature) if temperature else None)


class ChatFormat:
    """Renders prompts and parses answers of one model. Thread-safe. `pictures`: how it reads them; None: it does not."""

    def __init__(self, folder: ModelFolder, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.pictures = PictureFormat.of(folder.path)
        self._template = FolderTemplate(tokenizer, folder.path) if folder.renderer == TEMPLATE else None
        self.family = Family.of(folder.renderer, tokenizer, self._template)
        self.stop_ids = list(self.family.stop_ids)
        self.fingerprint = f"{self.family.name}:renderers-{version('renderers')}:" + _template_hash(
            folder.path
        )
        self._pieces = PieceTokenizer(tokenizer) if self.family.name in _WITH_PIECES else None
        self._heads = KnownHeads() if self.family.name in _WITH_HEADS else None
        self._renderers = OrderedDict({(json.dumps(True), False): self.family.renderer})
        self._lock = threading.Lock()

    def render(
        self,
        messages: Sequence[Message],
        tools: list[Message] | None,
        options: TemplateOptions,
        most: int | None = None,
        head: Head | None = None,
    ) -> list[int]:
        """Returns prompt ids [T], up to the start of the answer.

        Args:
            most: largest number of tokens; None for no limit.
            head: result of `known_head` for this request; None to render everything.

        Raises:
            ClientError: the chat template rejects the messages or options.
            TooManyTokens: the texts have more than `most` tokens.
        """
        if isinstance(messages[0], RawPrompt):
            return list(messages[0].ids)
        if head is not None and head.length:
            messages, tools = messages[head.length :], None
            most = None if most is None else most - len(head.ids)
        prepared = [renderable(message) for message in messages]
        renderer = self._renderer(options, pieces=self._pieces is not None)
        try:
            with nullcontext() if most is None else self.tokenizer.at_most(most):
                rendered = renderer.render(
                    prepared, tools=tools or None, add_generation_prompt=True, **self._marks_alone(messages)
                )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            message = f"messages: the chat template of this model rejects them: {error}"
            raise ClientError(message, "messages") from error
        if head is not None:
            return self._with_head(head, rendered)
        ids = rendered.token_ids
        return with_text_pieces_expanded(ids) if self._pieces is not None else self._widened(ids, messages)

    def _marks_alone(self, messages: Sequence[Message]) -> dict[str, bool]:
        """Returns the option of renderers that write one mark for a picture; without it they would process it."""
        return {"process_multimodal": False} if self.pictures is not None and picture_parts(messages) else {}

    def _widened(self, ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Returns the ids with a token for every part of the messages' pictures."""
        return list(ids) if self.pictures is None else self.pictures.widened(ids, picture_parts(messages))

    def known_head(
        self,
        messages: Sequence[Message],
        tools: list[Message] | None,
        options: TemplateOptions,
        prefixes: Sequence[bytes] | None,
    ) -> Head | None:
        """Returns the cached rendering of the beginning of a request, for `render`; None if it cannot be cached.

        Args:
            prefixes: `prefix_keys` of the messages.
        """
        if self._heads is None or isinstance(messages[0], RawPrompt):
            return None
        return self._heads.find(messages, tools or None, [options, self.tokenizer.text_is_plain], prefixes)

    def _with_head(self, head: Head, rendered: Any) -> list[int]:
        """Returns the ids [T] of a request from a cached head and the rendered messages after it. The ids before the
        last question are cached for later requests."""
        assert self._heads is not None
        entries, length = rendered.token_ids, head.question - head.length
        if not length:
            return head.ids.tolist() + with_text_pieces_expanded(entries)
        end = rendered.message_indices.index(length)
        longer = head.ids + array("i", with_text_pieces_expanded(entries[:end]))
        self._heads.keep(head.key, longer)
        return longer.tolist() + with_text_pieces_expanded(entries[end:])

    def whole(self, messages: Sequence[Message]) -> list[int]:
        """Returns the ids [T] of a complete conversation, without the start of another answer."""
        return list(self._renderer(False).render_ids(list(messages), tools=None, add_generation_prompt=False))

    def bridge(
        self,
        prompt_ids: list[int],
        completion_ids: list[int],
        new_messages: Sequence[Message],
        tools: list[Message] | None,
        options: TemplateOptions,
    ) -> list[int] | None:
        """Returns the ids of a turn, followed by new messages. Returns None if the template rewrites history (a new
        question drops old reasoning, or pictures are numbered), so that a full render is needed."""
        if isinstance(options, dict) and options.get("add_vision_id"):
            return None
        prepared = [renderable(message) for message in new_messages]
        rendered = self._renderer(options).bridge_to_next_turn(
            prompt_ids, completion_ids, prepared, tools=tools or None, **self._marks_alone(new_messages)
        )
        return None if rendered is None else self._widened(rendered.token_ids, new_messages)

    def placed(self, prompt_ids: list[int], messages: Sequence[Message]) -> list[PlacedPicture]:
        """Returns the places of the messages' pictures, which are the last ones of a rendered prompt."""
        return [] if self.pictures is None else self.pictures.placed(prompt_ids, picture_parts(messages))

    def parser(self, tools: bool) -> AnswerParser:
        """Returns a parser for one answer. `tools`: whether the request has tools."""
        return self.family.parser(tools)

    def _renderer(self, options: TemplateOptions, pieces: bool = False) -> Any:
        key = (json.dumps(options, sort_keys=True), pieces)
        with self._lock:
            renderer = self._renderers.pop(key, None)
            if renderer is None:
                tokenizer = self._pieces if pieces and self._pieces is not None else self.tokenizer
                renderer = make_renderer(self.family.name, tokenizer, options, self._template)
            self._renderers[key] = renderer
            if len(self._renderers) > KEPT_RENDERERS:
                self._renderers.popitem(last=False)
        return renderer


@dataclass(frozen=True)
class Head:
    """The cached part of a request's head.

    Attributes:
        key: cache key of the whole head.
        question: index of the last question, which is the number of messages of the head.
        length: number of messages whose ids are cached.
        ids: [T] ids of these messages.
    """

    key: bytes
    question: int
    length: int
    ids: array[int]


class KnownHeads:
    """Cache of prompt ids, so that the beginning of a conversation is not rendered and tokenized again. It holds the most
    recently used heads, of at most `limit` bytes. Thread-safe.

    The head of a request consists of its tools and the messages before the last question of the user. For the families
    in `_WITH_HEADS`, templates remove reasoning only before the last question, so a later question does not change a
    head: its ids are a prefix of every prompt that begins with the same messages and has a question after them. A test
    compares cached and full renderings.
    """

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._ids: OrderedDict[bytes, array[int]] = OrderedDict()
        self._lock = threading.Lock()

    def find(
        self,
        messages: Sequence[Message],
        tools: list[Message] | None,
        options: object,
        prefixes: Sequence[bytes] | None,
    ) -> Head | None:
        """Returns the longest cached prefix of a request's head; its `length` is 0 if none is cached.

        Returns None if the request has no head, or its tools or options cannot be represented as JSON.

        Args:
            options: everything besides tools and messages that changes the ids.
            prefixes: `prefix_keys` of the messages.
        """
        question = _last_question(messages)
        if question < 1 or prefixes is None:
            return None
        try:
            common = orjson.dumps([tools, options])
        except (TypeError, ValueError):
            return None
        start = hashlib.blake2b(common, digest_size=_DIGEST_BYTES).digest()
        with self._lock:
            for length in range(question, 0, -1):
                ids = self._ids.get(start + prefixes[length])
                if ids is not None and messages[length]["role"] in _FOLLOWS:
                    self._ids.move_to_end(start + prefixes[length])
                    return Head(start + prefixes[question], question, length, ids)
        return Head(start + prefixes[question], question, 0, array("i"))

    def keep(self, key: bytes, ids: array[int]) -> None:
        """Adds a head, and removes the least recently used ones over the limit."""
        with self._lock:
            if key not in self._ids:
                self._ids[key] = ids
                self._size += _bytes_of(ids)
            while self._size > self._limit:
                self._size -= _bytes_of(self._ids.popitem(last=False)[1])


def _last_question(messages: Sequence[Message]) -> int:
    """Returns the index of the last user message that is not a tool result in the format of Qwen's template; -1 if
    there is none."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message["role"] == "user" and not text_of(message).lstrip().startswith("<tool_response>"):
            return index
    return -1


def _bytes_of(ids: array[int]) -> int:
    return len(ids) * ids.itemsize + _ENTRY_BYTES


def renderable(message: Message) -> Message:
    """Returns a client's message in the form that templates accept: developer becomes system, text parts are joined,
    null becomes "". Pictures become parts without data."""
    role = "system" if message["role"] == "developer" else message["role"]
    content: Any = text_of(message)
    if picture_parts([message]):
        content = [{"type": "image"} if part.get("type") == PICTURE else part for part in message["content"]]
    return {**message, "role": role, "content": content}


def _has_tokens_of(renderer: str, path: Path) -> bool:
    """Returns whether a folder has the tokens of its renderer's family. Many models of type llama use ChatML instead."""
    if renderer not in _FIRST_TOKEN:
        return True
    try:
        return f'"{_FIRST_TOKEN[renderer]}"' in (path / "tokenizer.json").read_text()
    except OSError:
        return True  # Tokenizer raises the error


def _template_hash(path: Path) -> str:
    """Returns the hash of the chat template, which is stored with turns to detect changes."""
    template = path / "chat_template.jinja"
    if template.is_file():
        text = template.read_text()
    else:
        text = json.dumps((read_object(path / "tokenizer_config.json") or {}).get("chat_template"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
