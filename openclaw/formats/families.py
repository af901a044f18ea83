"""The supported model families, by `model_type` in config.json: their renderers, parsers and markers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from openclaw.errors import ClientError, ConfigError
from openclaw.formats.chat_template import FolderTemplate
from openclaw.formats.deltas import AnswerParser
from openclaw.formats.qwen_parser import Qwen3Format, Qwen3StreamParser
from openclaw.formats.reasoning import ReasoningMarks
from openclaw.formats.renderers_only import (
    MODEL_RENDERER_MAP,
    DefaultRenderer,
    DefaultRendererConfig,
    config_from_name,
    create_renderer,
)
from openclaw.formats.reparser import WholeFormat, WholeParser
from openclaw.formats.tokenizer import PieceTokenizer, Tokenizer

TemplateOptions = bool | dict[str, Any]
"""Whether reasoning is enabled, or a dictionary with all template options of a request."""

BY_MODEL_TYPE = {
    "deepseek_v3": "deepseek-v3",
    "deepseek_v4": "deepseek-v4",
    "gemma4": "gemma4",
    "gemma4_text": "gemma4",
    "glm4_moe": "glm-4.5",
    "glm4_moe_lite": "glm-5",
    "glm_moe_dsa": "glm-5",
    "gpt_oss": "gpt-oss",
    "hy_v3": "hy3",
    "inkling": "inkling",
    "kimi_k2": "kimi-k2",
    "kimi_k25": "kimi-k2.5",
    "laguna": "laguna-xs.2",
    "llama": "llama-3",
    "minimax_m2": "minimax-m2",
    "nemotron_h": "nemotron-3",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3",
    "qwen3_5": "qwen3.5",
    "qwen3_5_text": "qwen3.5",
    "qwen3_5_moe": "qwen3.5",
    "qwen3_5_moe_text": "qwen3.5",
    "qwen3_vl": "qwen3-vl",
    "qwen3_vl_moe": "qwen3-vl",
}
"""Renderer by `model_type`."""
TEMPLATE = "template"
"""Name of the renderer that uses the chat template in the folder, with tool calls in the format of Qwen and Hermes."""
_BY_FOLDER = {name.rpartition("/")[2].lower(): renderer for name, renderer in MODEL_RENDERER_MAP.items()}
"""Renderer by folder name, for models whose template differs from others of their type (DeepSeek R1, GLM-5.3, Qwen3.8,
...)."""

_THINKING_OPTIONS = ("enable_thinking", "thinking")
_THINK = ("<think>", "</think>")
_OTHER_REASONING = {
    "gemma4": ("<|channel>", "<channel|>"),
    "hy3": ("<think:opensource>", "</think:opensource>"),
}
"""Tokens that open and close reasoning, by renderer, if they are not `_THINK`. gpt-oss and Inkling close it with several
tokens."""
_JSON_CALLS = ("qwen3", "qwen3-vl")
_TAGGED_CALLS = ("qwen3.5", "qwen3.6", "qwen3.8", "nemotron-3", "nemotron-3-ultra", "nemotron-3.5")
_BARE_JSON = ("llama-3",)
_MARKERS = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "<function=", "<parameter="),
    *(
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<|python_tag|>",
        "<|observation|>",
        "<|user|>",
    ),
    *(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
    ),
    *("<｜DSML｜", "<minimax:tool_call>", "</minimax:tool_call>", "<|channel|>", "<|message|>", "<|call|>"),
    *("<|start|>", "<|end|>", "<|constrain|>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>", "</assistant>"),
)
"""Names of special tokens of all families. A family has those that are in its tokenizer; text may contain others."""


@dataclass(frozen=True)
class Family:
    """A model family with a tokenizer.

    Attributes:
        parser: creates a parser for one answer; its argument is whether tool calls are parsed.
        renderer: renderer with reasoning enabled and otherwise default options.
        stop_ids: ids that end an answer.
    """

    name: str
    tokenizer: Tokenizer
    parser: Callable[[bool], AnswerParser]
    renderer: Any
    stop_ids: tuple[int, ...]

    @classmethod
    def of(cls, name: str, tokenizer: Tokenizer, template: FolderTemplate | None = None) -> Family:
        """Returns a family.

        Args:
            template: required if `name` is TEMPLATE.

        Raises:
            ConfigError: the tokenizer lacks special tokens of the family.
        """
        renderer = make_renderer(name, tokenizer, True, template)
        stop = tuple(renderer.get_stop_token_ids())
        if name == "qwen3":
            form = Qwen3Format.of(tokenizer, stop)
            return cls(name, tokenizer, partial(Qwen3StreamParser, tokenizer, form), renderer, stop)
        if name in _TAGGED_CALLS:
            form = Qwen3Format.of(tokenizer, stop)
            parse = renderer.parse_response
            return cls(
                name,
                tokenizer,
                lambda tools: Qwen3StreamParser(
                    tokenizer, form, tools, lambda ids, known: parse(ids, tools=known)
                ),
                renderer,
                stop,
            )
        ids = [tokenizer.convert_tokens_to_ids(marker) for marker in _MARKERS]
        probes = tuple(token for token in ids if token is not None and token not in stop)
        whole = WholeFormat(renderer, _MARKERS, probes, frozenset(stop), name in _BARE_JSON)
        return cls(name, tokenizer, partial(WholeParser, tokenizer, whole), renderer, stop)

    @property
    def call_id(self) -> int | None:
        """Returns the id of the token with which each tool call begins; None if there is none."""
        has_marker = self.name in _JSON_CALLS or self.name in _TAGGED_CALLS
        return self.tokenizer.convert_tokens_to_ids("<tool_call>") if has_marker else None

    @property
    def reasoning(self) -> ReasoningMarks | None:
        """Returns the tokens that open and close reasoning; None if the tokenizer has no such tokens."""
        names = _OTHER_REASONING.get(self.name, _THINK)
        open_id, close_id = self.tokenizer.convert_tokens_to_ids(list(names))
        return None if None in (open_id, close_id) else ReasoningMarks(open_id, close_id, self.tokenizer)

    def forced_call(self, function: str | None) -> str | None:
        """Returns the text with which a call of a function begins; None if the family does not support it.

        Args:
            function: None for any function.
        """
        if self.name in _JSON_CALLS:
            begin = '<tool_call>\n{"name": "'
            return begin if function is None else f'{begin}{function}", "arguments":'
        if self.name in _TAGGED_CALLS:
            begin = "<tool_call>\n<function="
            return begin if function is None else f"{begin}{function}>\n"
        return None


def renderer_name(model_type: str, folder_name: str) -> str | None:
    """Returns the name of a model's renderer; None for an unknown family."""
    return _BY_FOLDER.get(folder_name.lower()) or BY_MODEL_TYPE.get(model_type)


def make_renderer(
    name: str,
    tokenizer: Tokenizer | PieceTokenizer,
    options: TemplateOptions,
    template: FolderTemplate | None = None,
) -> Any:
    """Returns a renderer with the template options of a request. Unknown options are ignored, as in chat templates.

    Raises:
        ClientError: the template rejects the value of an option.
        ConfigError: the tokenizer is not of this family.
    """
    requested = {"enable_thinking": options} if isinstance(options, bool) else dict(options)
    if template is not None:
        return _TemplateRenderer(template, requested)
    config = config_from_name(name)
    fields = type(config).template_field_names()
    if "enable_thinking" in requested:
        thinking = requested.pop("enable_thinking")
        requested |= {
            option: thinking for option in _THINKING_OPTIONS if option in fields and option not in requested
        }
    supported = {option: value for option, value in requested.items() if option in fields}
    try:
        return create_renderer(tokenizer, type(config)(**supported))
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise ClientError(f"chat_template_kwargs: {reason}", "chat_template_kwargs") from error
    except AssertionError as error:
        raise ConfigError(
            f"{tokenizer.name_or_path}: the tokenizer is not of the family {name}: {error}"
        ) from error


class _TemplateRenderer(DefaultRenderer):  # type: ignore[misc]  # `renderers` has no types
    """A renderer that uses the chat template of a folder. `options`: further variables of the template."""

    def __init__(self, template: FolderTemplate, options: dict[str, Any]) -> None:
        calls = None not in template.convert_tokens_to_ids(["<tool_call>", "</tool_call>"])
        try:
            config = DefaultRendererConfig(tool_parser="qwen3" if calls else None, **options)
            super().__init__(template, config)
        except ValueError as error:
            raise ClientError(f"chat_template_kwargs: {error}", "chat_template_kwargs") from error

    def get_stop_token_ids(self) -> list[int]:
        return list(self._tokenizer.stop_ids)
