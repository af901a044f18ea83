"""Converts a conversation to token ids and a loss mask. The text is rendered and tokenized once.

The trained tokens are those that the model itself must generate: from after the text that starts an answer
(`<|im_start|>assistant\\n`) to its end token. The end token is included, text that the template adds after it is not.
`--loss-mask-type` selects the answers and the rendering of the conversation:

* `qwen`: every answer in the template's rendering of the whole conversation, which may omit earlier reasoning;
* `qwen3`: every answer as it was generated, with its reasoning: each message is rendered as the last one;
* `distill_qwen`: only the last answer; all messages before it are its prompt.

A message with `"step_loss_mask": 0` is not trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slime.errors import ConfigError, DataError
from slime.rollout.tokenizer import ChatTokenizer

Messages = Sequence[Mapping[str, Any]]
QUESTION = {"role": "user", "content": "?"}


@dataclass(frozen=True)
class Masked:
    """A conversation as token ids [T] and a mask [T] of 0 and 1."""

    ids: list[int]
    mask: list[int]


@dataclass(frozen=True)
class Passage:
    """A part of the text with its trained ranges `answers`, [start, end) in characters."""

    text: str
    answers: tuple[tuple[int, int], ...] = ()


def masked(
    tokenizer: ChatTokenizer,
    messages: Messages,
    tools: Sequence[object] | None,
    kind: str,
    variables: Mapping[str, object] | None = None,
) -> Masked:
    """Returns ids and mask of a conversation.

    Raises:
        DataError: it has no answer to train on, or a message contains the text that starts an answer.
        ConfigError: the template does not define where an answer starts.
    """
    if not any(message["role"] == "assistant" for message in messages):
        raise DataError("the conversation has no assistant message to train on")
    passages = KINDS[kind](Renderer(tokenizer, tools, variables), messages)
    text = "".join(passage.text for passage in passages)
    spans, start = [], 0
    for passage in passages:
        spans += [(start + first, start + last) for first, last in passage.answers]
        start += len(passage.text)
    ids, offsets = tokenizer.encode_with_offsets(text)
    mask = [int(any(first <= a and b <= last for first, last in spans)) if b > a else 0 for a, b in offsets]
    if not any(mask):
        raise DataError("the conversation has no token to train on")
    return Masked(ids, mask)


class Renderer:
    """Renders messages with the chat template; `begin` and `end` are the texts before and after an answer."""

    def __init__(
        self, tokenizer: ChatTokenizer, tools: Sequence[object] | None, variables: Mapping[str, object] | None
    ) -> None:
        self.tokenizer, self.tools, self.variables = tokenizer, tools, variables
        bare = self.render([QUESTION], answer_next=False)
        asked = self.render([QUESTION], answer_next=True)
        if not asked.startswith(bare) or asked == bare:
            raise ConfigError(
                f"the chat template of {tokenizer.folder} does not define the beginning of an answer"
            )
        self.begin = asked[len(bare) :].split("<think>")[0]
        self.end = tokenizer.eos_token

    def render(self, messages: Messages, *, answer_next: bool) -> str:
        return self.tokenizer.render(messages, self.tools, answer_next=answer_next, variables=self.variables)

    def answers(self, text: str, messages: Messages) -> tuple[tuple[int, int], ...]:
        """Returns the ranges [start, end) of the trained answers in the rendered `messages`.

        A range starts after `begin` and includes `end`.
        """
        answers = [message for message in messages if message["role"] == "assistant"]
        spans, at = [], text.find(self.begin)
        while at >= 0:
            start = at + len(self.begin)
            end = text.find(self.end, start)
            end = len(text) if end < 0 else end + len(self.end)
            spans.append((start, end))
            at = text.find(self.begin, end)
        if len(spans) != len(answers) or text.count(self.begin) != len(answers):
            raise DataError(
                f"the conversation has {len(answers)} assistant messages, but {self.begin!r} "
                f"occurs {text.count(self.begin)} times in its rendering, because a message "
                "contains this text"
            )
        return tuple(
            span
            for span, message in zip(spans, answers, strict=True)
            if message.get("step_loss_mask", 1) == 1
        )


def whole_conversation(renderer: Renderer, messages: Messages) -> list[Passage]:
    text = renderer.render(messages, answer_next=False)
    return [Passage(text, renderer.answers(text, messages))]


def message_by_message(renderer: Renderer, messages: Messages) -> list[Passage]:
    """Returns each message (or run of tool results), rendered as if it were the last of the conversation."""
    passages = []
    for number, chunk in enumerate(chunks(messages)):
        if number == 0 and chunk[0]["role"] != "assistant":
            text = renderer.render(chunk, answer_next=False)
        else:
            plain = Renderer(renderer.tokenizer, None, renderer.variables) if renderer.tools else renderer
            before = plain.render([QUESTION], answer_next=False)
            text = plain.render([QUESTION, *chunk], answer_next=False)
            if not text.startswith(before):
                raise ConfigError(
                    "the chat template renders a message differently if another follows it; use "
                    "another --loss-mask-type"
                )
            text = text[len(before) :]
        passages.append(Passage(text, renderer.answers(text, chunk)))
    return passages


def chunks(messages: Messages) -> list[list[Mapping[str, Any]]]:
    """Returns the messages one by one, except that a system message joins the next one, and tool results stay
    together."""
    parts: list[list[Mapping[str, Any]]] = []
    for message in messages:
        before = parts[-1][-1]["role"] if parts else None
        together = (message["role"] == "tool" and before == "tool") or (
            before == "system" and message["role"] == "user"
        )
        if together:
            parts[-1].append(message)
        else:
            parts.append([message])
    return parts


def last_answer(renderer: Renderer, messages: Messages) -> list[Passage]:
    """Returns the conversation before the last answer as a prompt, then its unchanged content, then the end
    token."""
    *before, answer = messages
    if answer["role"] != "assistant" or not isinstance(answer.get("content"), str):
        raise DataError("--loss-mask-type distill_qwen needs a text message of the assistant at the end")
    if not before:
        raise DataError("--loss-mask-type distill_qwen needs a message before the answer")
    prompt, content = renderer.render(before, answer_next=True), answer["content"]
    opened = prompt.rstrip().endswith("<think>")
    if opened and content.lstrip().startswith("<think>"):
        content = content.lstrip().removeprefix("<think>").lstrip("\n")
    if not content.endswith(renderer.end):
        content += renderer.end
    trained = answer.get("step_loss_mask", 1) == 1
    return [Passage(prompt), Passage(content, ((0, len(content)),) if trained else ())]


KINDS: Mapping[str, Callable[[Renderer, Messages], list[Passage]]] = {
    "qwen": whole_conversation,
    "qwen3": message_by_message,
    "distill_qwen": last_answer,
}
