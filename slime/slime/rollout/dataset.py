"""Loads prompts for sampling: renders them and drops those that are too long."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slime.errors import ConfigError, DataError
from slime.rollout.prompts import Columns, Prompt, as_messages, read_prompts
from slime.rollout.tokenizer import ChatTokenizer, load_tokenizer
from slime.vision.pictures import pictures_of

if TYPE_CHECKING:
    from slime.flags.data import DataArguments
    from slime.flags.sides import GenerationSide

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DatasetSpec:
    """Settings for reading a prompt file.

    Attributes:
        source: FILE or FILE@[a:b].
        chat_template: render messages by the chat template; otherwise prompts are unchanged.
        variables: variables of the chat template.
        max_prompt_len: tokens; longer prompts are dropped. None keeps all.
    """

    source: str
    columns: Columns
    model: str
    chat_template: bool = False
    variables: Mapping[str, object] | None = None
    max_prompt_len: int | None = None


@dataclass(frozen=True)
class Dataset:
    """Prompts in file order, and the number of dropped ones."""

    source: str
    prompts: list[Prompt]
    too_long: int = 0

    def __len__(self) -> int:
        return len(self.prompts)


def load_dataset(spec: DatasetSpec) -> Dataset:
    """Loads, renders and measures prompts.

    Raises:
        ConfigError: the file or a chat template is missing.
        DataError: a row is invalid (the message has its number), or no prompt is left.
    """
    tokenizer = load_tokenizer(spec.model) if spec.chat_template or spec.max_prompt_len else None
    kept: list[Prompt] = []
    rows = read_prompts(spec.source, spec.columns)
    for where, prompt in rows:
        ready = _rendered(where, prompt, spec, tokenizer)
        if spec.max_prompt_len is None or _length(where, ready, spec, tokenizer) <= spec.max_prompt_len:
            kept.append(ready)
    too_long = len(rows) - len(kept)
    if too_long:
        logger.warning(
            "%s: dropped %d of %d prompts with more than %s tokens",
            spec.source,
            too_long,
            len(rows),
            spec.max_prompt_len,
        )
    if not kept:
        raise DataError(f"{spec.source}: all {len(rows)} prompts have more than {spec.max_prompt_len} tokens")
    return Dataset(spec.source, kept, too_long)


def _rendered(where: str, prompt: Prompt, spec: DatasetSpec, tokenizer: ChatTokenizer | None) -> Prompt:
    if not spec.chat_template or tokenizer is None or pictures_of(prompt.prompt):
        return prompt  # pictures are loaded when sampling
    try:
        text = tokenizer.render(
            as_messages(prompt.prompt),
            prompt.metadata.get("tools"),
            answer_next=True,
            variables=spec.variables,
        )
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    return replace(prompt, prompt=text)


def _length(where: str, prompt: Prompt, spec: DatasetSpec, tokenizer: ChatTokenizer | None) -> int:
    """Returns the prompt's length in tokens."""
    assert tokenizer is not None
    if isinstance(prompt.prompt, str):
        return len(tokenizer.encode(prompt.prompt))
    try:
        text = tokenizer.render(prompt.prompt, prompt.metadata.get("tools"), answer_next=False)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    return len(tokenizer.encode(text))


def training_spec(args: GenerationSide) -> DatasetSpec:
    """Returns the settings for --prompt-data."""
    assert args.prompt_data is not None
    return DatasetSpec(
        source=args.prompt_data,
        columns=Columns(args.input_key, args.label_key, args.metadata_key, args.tool_key),
        model=args.hf_checkpoint,
        chat_template=args.apply_chat_template,
        variables=template_variables(args),
        max_prompt_len=args.rollout_max_prompt_len,
    )


def template_variables(args: DataArguments) -> dict[str, object]:
    """Returns --apply-chat-template-kwargs as a dictionary. Raises ConfigError."""
    try:
        variables = json.loads(args.apply_chat_template_kwargs)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--apply-chat-template-kwargs is not JSON: {error}") from error
    if not isinstance(variables, dict):
        raise ConfigError(
            f"--apply-chat-template-kwargs must be a JSON object, got {args.apply_chat_template_kwargs}"
        )
    return variables
