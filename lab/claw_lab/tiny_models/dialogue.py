"""Demonstrations, and their token ids with loss weights, equal to those of an episode with the same texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slime.agents.conversation import Placed, continuation, no_pictures, opening
from slime.agents.protocol import Message, Start
from slime.rollout.tokenizer import ChatTokenizer
from slime.vision.place import ImagePlace, behind


@dataclass(frozen=True)
class Answered:
    """One turn: the model's text, and the text that it is shown afterwards (none after the last)."""

    text: str
    shown: Sequence[Message] = ()


@dataclass(frozen=True)
class Dialogue:
    """A whole demonstration."""

    start: Start
    turns: Sequence[Answered]


@dataclass(frozen=True)
class Document:
    """Token ids and their loss weights, both [T], and the positions of pictures."""

    ids: list[int]
    weights: list[float]
    images: Sequence[ImagePlace] = ()


def encode(
    tokenizer: ChatTokenizer, dialogue: Dialogue, background: float, placed: Placed = no_pictures
) -> Document:
    """Returns the ids of an episode with these turns; the model's text has weight 1, the rest `background`."""
    ids, images = placed(opening(tokenizer, dialogue.start), dialogue.start.messages)
    weights = [background] * len(ids)
    for turn in dialogue.turns:
        written = tokenizer.encode(turn.text + tokenizer.eos_token)
        between, seen = placed(continuation(tokenizer, turn.shown), turn.shown) if turn.shown else ([], [])
        images += behind(seen, len(ids) + len(written))
        ids += written + between
        weights += [1.0] * len(written) + [background] * len(between)
    return Document(ids, weights, images)
