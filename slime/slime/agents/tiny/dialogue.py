"""Demonstrations, and their token ids with loss weights, as an episode of the same words would have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slime.agents.conversation import continuation, opening
from slime.agents.protocol import Message, Start
from slime.rollout.tokenizer import ChatTokenizer


@dataclass(frozen=True)
class Answered:
    """One turn: what the model writes, and what it is shown then (nothing after the last)."""

    text: str
    shown: Sequence[Message] = ()


@dataclass(frozen=True)
class Dialogue:
    """A demonstration from its beginning to its end."""

    start: Start
    turns: Sequence[Answered]


@dataclass(frozen=True)
class Document:
    """Token ids and their loss weights, both [T]."""

    ids: list[int]
    weights: list[float]


def encode(tokenizer: ChatTokenizer, dialogue: Dialogue, background: float) -> Document:
    """The ids that an episode with these turns has; what the model writes weighs 1, the rest `background`."""
    ids = opening(tokenizer, dialogue.start)
    weights = [background] * len(ids)
    for turn in dialogue.turns:
        written = tokenizer.encode(turn.text + tokenizer.eos_token)
        between = continuation(tokenizer, turn.shown) if turn.shown else []
        ids += written + between
        weights += [1.0] * len(written) + [background] * len(between)
    return Document(ids, weights)
