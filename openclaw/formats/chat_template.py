"""Renders with the chat template in a model folder, for model families without a renderer.

A chat template is a Jinja program from the model's author. It runs in Jinja's sandbox, with the functions documented by
Hugging Face. Names of special tokens in messages stay plain text: they are split before the template runs, and the
parts are tokenized separately.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from claw_base.files import read_object
from openclaw.errors import ConfigError
from openclaw.formats.tokenizer import Tokenizer
from openclaw.types import Message

_CUT = "\ufdd0"
"""Mark at which names of special tokens are split: a Unicode noncharacter, which is replaced in messages."""
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """The chat template of a folder, in `chat_template.jinja` or `tokenizer_config.json`.

    If there are several templates, `tool_use` is for requests with tools, and `default` for all others. Raises
    ConfigError if there is no template, or it is invalid.
    """

    def __init__(self, folder: Path) -> None:
        config = read_object(folder / "tokenizer_config.json") or {}
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": lambda form: datetime.now().strftime(form),
        }
        try:
            self._templates = {
                name: environment.from_string(text) for name, text in _sources(folder, config).items()
            }
        except TemplateError as error:
            raise ConfigError(f"{folder}: the chat template is not valid Jinja: {error}") from error
        if "default" not in self._templates:
            raise ConfigError(f"{folder}: the folder has no chat template; use a chat (instruct) model")
        self._tokens = {name: _content(config.get(name)) for name in _TOKENS if config.get(name)}

    def text(
        self, messages: Sequence[Message], tools: list[Message] | None, ends: bool, options: Mapping[str, Any]
    ) -> str:
        """Returns the rendered text of a conversation.

        Args:
            ends: whether to append the start of an answer.
            options: further variables of the template.

        Raises:
            ValueError: the template rejects the messages or options.
        """
        template: Template = self._templates["default"]
        if tools and "tool_use" in self._templates:
            template = self._templates["tool_use"]
        try:
            return template.render(
                **{**options, **self._tokens}, messages=messages, tools=tools, add_generation_prompt=ends
            )
        except (TemplateError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(str(error)) from error


class FolderTemplate:
    """A tokenizer with a chat template, with the interface that `renderers.DefaultRenderer` expects."""

    def __init__(self, tokenizer: Tokenizer, folder: Path) -> None:
        self._tokenizer = tokenizer
        self._template = ChatTemplate(folder)
        self.stop_ids = tuple(sorted(_stop_ids(folder, tokenizer)))
        if not self.stop_ids:
            raise ConfigError(f"{folder}: eos_token is missing: no token is declared as the end of an answer")

    def apply_chat_template(
        self, messages: Sequence[Message], *, tools: list[Message] | None = None, add_generation_prompt: bool = False,
        tokenize: bool = True, return_dict: bool = False, **options: Any,
    ) -> list[int]:  # fmt: skip
        """Returns prompt ids [T]. DefaultRenderer passes `tokenize` and `return_dict`, which are ignored. Raises
        ValueError, TooManyTokens."""
        escaped = [self._escape(message) for message in messages]
        text = self._template.text(escaped, tools, add_generation_prompt, options)
        self._tokenizer.check_length(text)
        return [token for part in text.split(_CUT) for token in self._tokenizer.encode_markup(part)]

    def _escape(self, value: Any) -> Any:
        """Returns a message with all names of special tokens in its texts split."""
        if isinstance(value, str):
            return self._tokenizer.cut_names(value.replace(_CUT, "\ufffd"), _CUT)
        if isinstance(value, list):
            return [self._escape(one) for one in value]
        if isinstance(value, dict):
            return {name: self._escape(one) for name, one in value.items()}
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def has_template(folder: Path) -> bool:
    """Returns whether a model folder has a chat template."""
    return bool(_sources(folder, read_object(folder / "tokenizer_config.json") or {}))


def _sources(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Returns the sources of the chat templates by name; one without a name is `default`."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return {"default": file.read_text()}
    template = config.get("chat_template")
    if isinstance(template, str):
        return {"default": template}
    if isinstance(template, list):
        return {str(one["name"]): str(one["template"]) for one in template}
    return {}


def _stop_ids(folder: Path, tokenizer: Tokenizer) -> set[int]:
    """Returns the stop ids in generation_config.json, config.json and the tokenizer."""
    stop_ids: set[Any] = {tokenizer.eos_token_id}
    for name in ("generation_config.json", "config.json"):
        ids = (read_object(folder / name) or {}).get("eos_token_id")
        stop_ids |= set(ids if isinstance(ids, list) else [ids])
    return {one for one in stop_ids if isinstance(one, int)}


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)
