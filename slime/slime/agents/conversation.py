"""A conversation as token ids: sampled ids stay unchanged, and only other text is encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from slime.agents.protocol import Message, Start
from slime.errors import DataError
from slime.rollout.tokenizer import ChatTokenizer
from slime.vision.pictures import pictures_of, texts_alone, without_pictures
from slime.vision.place import ImagePlace, behind

Placed = Callable[[list[int], Sequence[Message]], tuple[list[int], list[ImagePlace]]]
_ANSWER = "the answer so far"
_EXAMPLE = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": _ANSWER}]


def opening(tokenizer: ChatTokenizer, start: Start) -> list[int]:
    """Returns the ids of the first messages and tools [T]; the model's answer follows them."""
    tools = [tool.spec() for tool in start.tools]
    return tokenizer.encode(tokenizer.render(start.messages, tools, answer_next=True))


def continuation(tokenizer: ChatTokenizer, messages: Sequence[Message]) -> list[int]:
    """Returns the ids between the end of one answer and the start of the next [T], by the model's template.

    The template renders `messages` after a fixed answer, and only the part after that answer is used, so that sampled
    answers are never encoded again.

    Raises:
        DataError: the template does not end an answer with the token that ends sampling.
    """
    end_of_answer = _ANSWER + tokenizer.eos_token
    _, end, rest = tokenizer.render([*_EXAMPLE, *messages], answer_next=True).partition(end_of_answer)
    if not end:
        raise DataError(
            f"the chat template does not end an answer with {tokenizer.eos_token}, so its ids cannot be continued"
        )
    return tokenizer.encode(rest)


def no_pictures(ids: list[int], messages: Sequence[Message]) -> tuple[list[int], list[ImagePlace]]:
    """Returns the ids unchanged, for text-only conversations."""
    if pictures_of(messages):
        raise DataError("a message has pictures, but this conversation is text-only")
    return ids, []


@dataclass
class _Exchange:
    """An answer as sampled, and the environment's observation after it."""

    sampled: list[int]
    messages: Sequence[Message]
    shown: list[int]
    images: list[ImagePlace]
    folded: bool = False


class Conversation:
    """The ids that the model sees. They only grow, unless observations are folded or pictures removed.

    Attributes:
        length: response tokens so far, without folding.

    Args:
        placed: reads the pictures of rendered messages (`GenerateState.placed`).

    Raises:
        ConfigError: a message has pictures, but the model has no vision.
        DataError: a value is not a picture.
    """

    def __init__(self, tokenizer: ChatTokenizer, start: Start, placed: Placed = no_pictures) -> None:
        self.tokenizer, self.placed = tokenizer, placed
        self._open(start)
        self.exchanges: list[_Exchange] = []
        self.length = 0

    def _open(self, start: Start) -> None:
        self.start = start
        self.opening, self.first_images = self.placed(opening(self.tokenizer, start), start.messages)

    def ids(self) -> list[int]:
        """Returns ids [T]."""
        parts = (part for exchange in self.exchanges for part in (exchange.sampled, exchange.shown))
        return [*self.opening, *(token for part in parts for token in part)]

    def images(self) -> list[ImagePlace]:
        """Returns the places of images among `ids`."""
        images, before = list(self.first_images), len(self.opening)
        for exchange in self.exchanges:
            images += behind(exchange.images, before + len(exchange.sampled))
            before += len(exchange.sampled) + len(exchange.shown)
        return images

    def pictures(self) -> list[str]:
        """Returns the pictures of `images`."""
        seen = [exchange.messages for exchange in self.exchanges if exchange.images]
        return [url for messages in (self.start.messages, *seen) for url in pictures_of(messages)]

    def add(self, sampled: list[int], messages: Sequence[Message]) -> list[int]:
        """Adds an answer and its observation; returns the ids of the latter."""
        shown, images = self.placed(continuation(self.tokenizer, messages), messages)
        self.exchanges.append(_Exchange(sampled, messages, shown, images))
        self.length += len(sampled) + len(shown)
        return shown

    def fold(self, most: int) -> None:
        """Folds observations, oldest first and never the newest, until at most `most` ids are left.

        A folded observation keeps its messages, their roles and the template's markup. Text content is replaced by
        "[N characters left out]", a picture by "[image left out]". The model's answers stay unchanged.
        """
        for exchange in self.exchanges[:-1]:
            if len(self.ids()) <= most:
                return
            if exchange.folded:
                continue
            exchange.folded = True
            shorter = continuation(self.tokenizer, list(_folded(exchange.messages)))
            if len(shorter) < len(exchange.shown):
                exchange.shown, exchange.images = shorter, []

    def keep_pictures(self, most: int) -> None:
        """Removes pictures, oldest first and never those of the newest observation, until at most `most` are left.
        All pictures of an observation are removed together and replaced by "[image left out]"; its texts stay."""
        if self.exchanges and self.first_images and len(self.images()) > most:
            self._open(Start(list(_texts_alone(self.start.messages)), self.start.tools))
        for exchange in self.exchanges[:-1]:
            if len(self.images()) <= most:
                return
            if exchange.images:
                shorter = continuation(self.tokenizer, list(_texts_alone(exchange.messages)))
                exchange.shown, exchange.images = shorter, []


def _texts_alone(messages: Iterable[Message]) -> Iterable[Message]:
    for message in messages:
        content = message.get("content")
        yield {**message, "content": texts_alone(content)} if isinstance(content, list) else message


def _folded(messages: Iterable[Message]) -> Iterable[Message]:
    for message in messages:
        content = message.get("content")
        yield (
            {**message, "content": f"[{len(content)} characters left out]"}
            if isinstance(content, str)
            else {**message, "content": without_pictures(content)}
            if isinstance(content, list)
            else message
        )
