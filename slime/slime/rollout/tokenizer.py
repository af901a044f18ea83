"""The model's tokenizer and chat template, without torch."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slime.errors import ConfigError, DataError


class ChatTokenizer:
    """Converts text and conversations to token ids for the model in `folder`. Thread-safe.

    Raises:
        ConfigError: the folder has no tokenizer.json.
    """

    def __init__(self, folder: str) -> None:
        if not (Path(folder) / "tokenizer.json").is_file():
            raise ConfigError(
                f"{folder} contains no tokenizer.json, which rollouts need; use a model that has one"
            )
        from transformers import PreTrainedTokenizerFast

        self.folder = folder
        self.fast: Any = PreTrainedTokenizerFast.from_pretrained(folder)

    @property
    def eos_token(self) -> str:
        """Returns the end token of answers. Raises ConfigError if the model has none."""
        if not self.fast.eos_token:
            raise ConfigError(f"{self.folder}/tokenizer_config.json has no eos_token")
        return str(self.fast.eos_token)

    def encode(self, text: str) -> list[int]:
        """Returns ids [T] of a text; special tokens in the text are recognised, and none are added."""
        ids: list[int] = self.fast(text, add_special_tokens=False)["input_ids"]
        return ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Returns ids [T] and the character range [start, end) of each."""
        encoded = self.fast(text, add_special_tokens=False, return_offsets_mapping=True)
        return encoded["input_ids"], encoded["offset_mapping"]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.fast.decode(list(ids)))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[object] | None = None,
        *,
        answer_next: bool,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """Returns the conversation as text, by the model's chat template.

        Args:
            answer_next: append the beginning of an answer.
            variables: further variables of the template.

        Raises:
            ConfigError: the model has no chat template.
            DataError: the template rejects these messages.
        """
        if not self.fast.chat_template:
            raise ConfigError(
                f"{self.folder} has no chat template; text prompts need none (remove --apply-chat-template)"
            )
        try:
            return str(
                self.fast.apply_chat_template(
                    list(messages),
                    tools=list(tools) if tools else None,
                    tokenize=False,
                    add_generation_prompt=answer_next,
                    **dict(variables or {}),
                )
            )
        except Exception as error:  # templates may raise any exception
            raise DataError(f"the chat template rejects the messages: {error}") from error


@functools.lru_cache(maxsize=4)
def load_tokenizer(folder: str) -> ChatTokenizer:
    """Returns the tokenizer of a model folder, loaded once."""
    return ChatTokenizer(folder)
