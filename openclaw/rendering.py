"""Messages to prompt ids, and the parser of the answer, for the model family named in config.json.

Rendering is `renderers`' (the ids a chat template gives, without transformers). Where nothing was edited, the
prompt of the next turn is the last turn's own ids, as seen and sampled, and what is new behind them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from renderers.configs import Qwen3RendererConfig
from renderers.qwen3 import Qwen3Renderer

from openclaw.errors import ConfigError
from openclaw.stream_parser import Qwen3Format, Qwen3StreamParser
from openclaw.tokenizer import Tokenizer

Message = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """How one model family writes conversations: renderer by thinking or not, and the parser of its
    answers."""

    name: str
    renderer: Callable[[Tokenizer, bool], Any]
    format: Callable[[Tokenizer, Sequence[int]], Any]
    parser: Callable[[Tokenizer, Any, bool], Qwen3StreamParser]


QWEN3 = Family(
    "qwen3",
    lambda tokenizer, thinking: Qwen3Renderer(tokenizer, Qwen3RendererConfig(enable_thinking=thinking)),
    Qwen3Format.of,
    Qwen3StreamParser,
)
FAMILIES = {"qwen3": QWEN3, "qwen3_moe": QWEN3}
"""By `model_type` of config.json."""


@dataclass(frozen=True)
class ModelFolder:
    """What the gateway reads of a Hugging Face model folder. Raises ConfigError when it is none."""

    path: Path
    model_type: str
    context_length: int
    temperature: float | None

    @classmethod
    def read(cls, path: Path) -> ModelFolder:
        config = _json(path / "config.json")
        if config is None:
            raise ConfigError(
                f"{path} is not a model: it has no readable config.json; give a Hugging Face folder"
            )
        model_type = str(config.get("model_type"))
        if model_type not in FAMILIES:
            known = ", ".join(sorted(FAMILIES))
            raise ConfigError(f"{path}: model_type {model_type!r} cannot be served; supported: {known}")
        length = config.get("max_position_embeddings")
        if not isinstance(length, int) or length < 1:
            raise ConfigError(f"{path}/config.json: max_position_embeddings is missing")
        temperature = (_json(path / "generation_config.json") or {}).get("temperature")
        return cls(path, model_type, length, float(temperature) if temperature else None)


class ChatFormat:
    """Renders prompts and parses answers of one model. Thread-safe."""

    def __init__(self, folder: ModelFolder, tokenizer: Tokenizer) -> None:
        self.family = FAMILIES[folder.model_type]
        self.tokenizer = tokenizer
        self._renderers = {thinking: self.family.renderer(tokenizer, thinking) for thinking in (True, False)}
        self.stop_ids: list[int] = list(self._renderers[True].get_stop_token_ids())
        self._format = self.family.format(tokenizer, self.stop_ids)
        self.fingerprint = f"{self.family.name}:renderers-{version('renderers')}:" + _template_hash(
            folder.path
        )

    def render(self, messages: Sequence[Message], tools: list[Message] | None, thinking: bool) -> list[int]:
        """Prompt ids [T] that end where the answer begins."""
        prepared = [renderable(message) for message in messages]
        ids = self._renderers[thinking].render_ids(prepared, tools=tools or None, add_generation_prompt=True)
        return list(ids)

    def bridge(
        self,
        prompt_ids: list[int],
        completion_ids: list[int],
        new_messages: Sequence[Message],
        tools: list[Message] | None,
        thinking: bool,
    ) -> list[int] | None:
        """The ids of a turn, followed by new messages. None where the template rewrites history (a new
        question drops old reasoning): then a full render is due."""
        prepared = [renderable(message) for message in new_messages]
        rendered = self._renderers[thinking].bridge_to_next_turn(
            prompt_ids, completion_ids, prepared, tools=tools or None
        )
        return None if rendered is None else list(rendered.token_ids)

    def parser(self, tools: bool) -> Qwen3StreamParser:
        """A parser for one answer; `tools`: whether it may call tools."""
        return self.family.parser(self.tokenizer, self._format, tools)


def renderable(message: Message) -> Message:
    """A client's message as templates know it: developer is system, text parts are joined, null is empty."""
    role = "system" if message["role"] == "developer" else message["role"]
    return {**message, "role": role, "content": text_of(message.get("content"))}


def text_of(content: Any) -> str:
    """The text of a message's content: a string, null, or a list of text parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content)
    return content or ""


def _template_hash(path: Path) -> str:
    """Of the model's own chat template, so that a changed template can be seen in stored turns."""
    template = path / "chat_template.jinja"
    if template.is_file():
        text = template.read_text()
    else:
        text = json.dumps((_json(path / "tokenizer_config.json") or {}).get("chat_template"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
