"""Prompts with hindsight: the same conversation, with a hint after the user's last message.

The teacher of on-policy distillation gets the hinted prompt and the student's own ids: nothing is tokenised again, so
its log-probs align with the student's (arXiv 2603.10165; placement as in OpenClaw-RL).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path

from openclaw.common.messages import picture_parts, text_of
from openclaw.errors import ClientError, HintError
from openclaw.formats.families import TemplateOptions
from openclaw.formats.reasoning import ReasoningMarks
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.template_probe import probe
from openclaw.formats.tokenizer import Tokenizer
from openclaw.types import Message, Turn

HINT_HEADER = "[user's hint / instruction]"


def with_hint(messages: Sequence[Message], hint: str) -> list[Message]:
    """Returns the conversation with the hint after its last user message; without one, after the last message;
    without any message, as the only one. The arguments are not modified."""
    if not messages:
        return [{"role": "user", "content": f"{HINT_HEADER}\n{hint}"}]
    users = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    at = users[-1] if users else len(messages) - 1
    added = f"\n\n{HINT_HEADER}\n{hint}"
    content: object = text_of(messages[at]) + added
    if picture_parts([messages[at]]):
        content = [*messages[at]["content"], {"type": "text", "text": added}]
    return [*messages[:at], {**messages[at], "content": content}, *messages[at + 1 :]]


def with_memory(messages: Sequence[Message], memory: Sequence[str] | None) -> list[Message]:
    """Returns the conversation with the person's remembered preferences as one hint; unchanged if there are none."""
    return with_hint(messages, "\n".join(memory)) if memory else list(messages)


def hinted_prompt_ids(chat_format: ChatFormat, turn: Turn, hint: str) -> list[int]:
    """Returns the ids of the turn's prompt with the hint in it, in addition to remembered preferences, rendered with
    the turn's tools and template options.

    Only the ids around the hint are new: if the student's prompt agrees with a rendering of its messages up to there,
    the rest of it is kept unchanged (a continued turn, a forced beginning of the answer).

    Raises:
        HintError: the prompt is plain text without messages, or the template cannot render the hinted ones.
    """
    if any(message.get("format") == "raw" for message in turn.messages):
        raise HintError("a prompt without messages has no place for a hint")
    options = turn.sampling.get("enable_thinking", True)
    try:
        plain = chat_format.render(with_memory(turn.messages, turn.memory), turn.tools, options)
        hinted = chat_format.render(
            with_memory(turn.messages, [*(turn.memory or ()), hint]), turn.tools, options
        )
    except ClientError as error:
        raise HintError(f"the hinted prompt cannot be rendered: {error}") from error
    head = _common(plain, hinted)
    tail = _common(plain[head:][::-1], hinted[head:][::-1])
    end = len(plain) - tail
    if turn.prompt_ids[:end] != plain[:end]:
        return hinted
    return hinted[: len(hinted) - tail] + turn.prompt_ids[end:]


class HintedPrompts:
    """Hinted prompts of one model. `context_length`: the most ids that prompt and answer may have together."""

    def __init__(self, chat_format: ChatFormat, context_length: int) -> None:
        self._format = chat_format
        self.context_length = context_length

    @classmethod
    def of(cls, model_path: str | Path) -> HintedPrompts:
        """Returns the prompts of a Hugging Face folder, loaded like in the gateway. Raises ConfigError."""
        folder = ModelFolder.read(Path(model_path).expanduser())
        tokenizer = Tokenizer(folder.path)
        chat_format = ChatFormat(folder, tokenizer)
        tokenizer.read_text_as_plain(lambda: probe(chat_format))
        return cls(chat_format, folder.context_length)

    @property
    def tokenizer(self) -> Tokenizer:
        return self._format.tokenizer

    @property
    def stop_ids(self) -> list[int]:
        """Returns the ids of tokens that end an answer."""
        return self._format.stop_ids

    @property
    def reasoning(self) -> ReasoningMarks | None:
        """Returns the tokens that open and close reasoning; None if the model has no such tokens."""
        return self._format.family.reasoning

    def may_reason(self, options: TemplateOptions) -> bool:
        """Returns whether the model has tokens for reasoning, and the template with these options does not disable it."""
        if self.reasoning is None:
            return False
        try:
            prompt = self.asked([{"role": "user", "content": "?"}], options, 0)
        except HintError:
            return False
        return self.reasoning.is_open_after(prompt) is not False

    def text(self, ids: Sequence[int]) -> str:
        """Returns the text of an answer, without white space around it and the tokens that end it."""
        end = len(ids)
        while end and ids[end - 1] in self.stop_ids:
            end -= 1
        return self.tokenizer.decode(list(ids[:end])).strip()

    def model(self, options: TemplateOptions) -> str:
        """Returns an id of the prompt format: the same for the same tokenizer, template and options."""
        parts = (self.tokenizer.fingerprint, self._format.fingerprint, json.dumps(options, sort_keys=True))
        return ":".join(parts)

    def asked(self, messages: Sequence[Message], options: TemplateOptions, room: int) -> list[int]:
        """Returns ids of a conversation without tools, up to the start of an answer. Raises HintError if the template
        cannot render it, or less than `room` tokens are left."""
        try:
            prompt = self._format.render(list(messages), None, options)
        except ClientError as error:
            raise HintError(f"the conversation cannot be rendered: {error}") from error
        if len(prompt) + room > self.context_length:
            raise HintError(f"the prompt has {len(prompt)} tokens and leaves no room for an answer of {room}")
        return prompt

    def candidate(self, turn: Turn, hint: str) -> list[int]:
        """Returns hinted prompt ids and the turn's own completion ids [T]. Raises HintError, also if the prompt is
        too long, or has pictures, which no teacher reads."""
        _refuse_pictures(turn)
        return self._fitting(hinted_prompt_ids(self._format, turn, hint) + turn.completion_ids)

    def answered(self, turn: Turn, messages: Sequence[Message]) -> list[int]:
        """Returns ids of another conversation, with the turn's tools and template options, and the turn's own
        completion ids [T]. Raises HintError as `candidate`."""
        _refuse_pictures(turn)
        if any(message.get("format") == "raw" for message in turn.messages):
            raise HintError("a prompt without messages cannot be rendered with other ones")
        try:
            prompt = self._format.render(
                list(messages), turn.tools, turn.sampling.get("enable_thinking", True)
            )
        except ClientError as error:
            raise HintError(f"the conversation cannot be rendered: {error}") from error
        return self._fitting(prompt + turn.completion_ids)

    def behind(self, turn: Turn, messages: Sequence[Message]) -> list[int] | None:
        """Returns the ids of the turn and of the messages after it, as in the next prompt, truncated to the model's
        context; None if the template rewrites earlier messages (it drops old reasoning), or cannot render the
        messages."""
        options = turn.sampling.get("enable_thinking", True)
        own = turn.prompt_ids + turn.completion_ids
        try:
            ids = self._format.bridge(turn.prompt_ids, turn.completion_ids, messages, turn.tools, options)
            if ids is None:
                whole = [*turn.messages, {"role": "assistant", **turn.response_message}, *messages]
                ids = self._format.render(whole, turn.tools, options)
        except ClientError:
            return None
        return ids[: self.context_length] if ids[: len(own)] == own else None

    def _fitting(self, ids: list[int]) -> list[int]:
        if len(ids) > self.context_length:
            raise HintError(
                f"the hinted turn has {len(ids)} tokens; the model's context is {self.context_length}"
            )
        return ids


@functools.lru_cache(maxsize=4)
def prompts_of(model_path: str) -> HintedPrompts:
    """Returns the prompts of a model folder, cached in the process. Raises ConfigError."""
    return HintedPrompts.of(model_path)


def _refuse_pictures(turn: Turn) -> None:
    if turn.pictures:
        raise HintError("a teacher reads no pictures")


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns the length of the common prefix."""
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
