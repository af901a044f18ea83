"""The model folder's own chat template, for models of families that have no renderer here.

A template is a program in Jinja that comes with the model; it runs in Jinja's sandbox, with the functions that
Hugging Face's documentation of chat templates allows. Text that spells a special token stays plain text: the token's
name is cut in two before the template runs, and the halves are tokenized separately.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from openclaw.errors import ConfigError
from openclaw.formats.tokenizer import Tokenizer
from openclaw.types import Message

_CUT = "\ufdd0"
"""A Unicode noncharacter, which never occurs in valid text."""
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """The template of a folder: `chat_template.jinja`, else that of `tokenizer_config.json`, where one that is named
    `tool_use` serves requests with tools. Raises ConfigError if there is none, or it is invalid."""

    def __init__(self, folder: Path) -> None:
        config = _json(folder / "tokenizer_config.json")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {
            "raise_exception": _refuse,
            "strftime_now": lambda form: datetime.now().strftime(form),
        }
        try:
            self._templates = {
                name: environment.from_string(text) for name, text in _sources(folder, config).items()
            }
        except TemplateError as error:
            raise ConfigError(f"{folder}: its chat template cannot be read: {error}") from error
        if "default" not in self._templates:
            raise ConfigError(f"{folder} has no chat template, so it cannot hold a conversation")
        self._tokens = {name: _content(config.get(name)) for name in _TOKENS if config.get(name)}

    def text(
        self, messages: Sequence[Message], tools: list[Message] | None, ends: bool, options: Mapping[str, Any]
    ) -> str:
        """Returns the conversation as one text. `ends`: append the start of an answer.

        Raises:
            ValueError: the template rejects these messages or options.
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
    """A tokenizer with the folder's chat template, in the form that `renderers.DefaultRenderer` expects."""

    def __init__(self, tokenizer: Tokenizer, folder: Path) -> None:
        self._tokenizer = tokenizer
        self._template = ChatTemplate(folder)
        self.stop_ids = tuple(sorted(_stop_ids(folder, tokenizer)))
        if not self.stop_ids:
            raise ConfigError(f"{folder}: no token is declared as the end of an answer (eos_token)")

    def apply_chat_template(
        self, messages: Sequence[Message], *, tools: list[Message] | None = None, add_generation_prompt: bool = False,
        tokenize: bool = True, return_dict: bool = False, **options: Any,
    ) -> list[int]:  # fmt: skip
        """Returns prompt ids [T]; `tokenize` and `return_dict` are set by DefaultRenderer. Raises ValueError,
        TooManyTokens."""
        cut = [self._cut(message) for message in messages]
        text = self._template.text(cut, tools, add_generation_prompt, options)
        self._tokenizer.see_that_fits(text)
        return [token for part in text.split(_CUT) for token in self._tokenizer.encode_markup(part)]

    def _cut(self, value: Any) -> Any:
        """Returns the message with all names of special tokens in its texts cut in two."""
        if isinstance(value, str):
            return self._tokenizer.cut_names(value.replace(_CUT, "\ufffd"), _CUT)
        if isinstance(value, list):
            return [self._cut(one) for one in value]
        if isinstance(value, dict):
            return {name: self._cut(one) for name, one in value.items()}
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def has_template(folder: Path) -> bool:
    return bool(_sources(folder, _json(folder / "tokenizer_config.json")))


def _sources(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Returns the template texts by name."""
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
    """Returns the stop ids of generation_config.json, config.json and the tokenizer."""
    ids_of_stops: set[Any] = {tokenizer.eos_token_id}
    for name in ("generation_config.json", "config.json"):
        ids = _json(folder / name).get("eos_token_id")
        ids_of_stops |= set(ids if isinstance(ids, list) else [ids])
    return {one for one in ids_of_stops if isinstance(one, int)}


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
