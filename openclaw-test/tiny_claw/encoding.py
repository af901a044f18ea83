"""From training conversations to token ids with loss weights, in the very format the model is served in."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from detectors import visible
from tiny_claw.dialogues import Conversation, Equations, conversation, equations
from tiny_claw.tokenizer import EMPTY_THINKING, END_OF_TEXT, TURN_END, TURN_START

BACKGROUND_WEIGHT = 0.05  # loss weight of what the model reads; what it says weighs 1


@dataclass(frozen=True)
class Document:
    """Token ids and the loss weight of each, both [T]."""

    ids: list[int]
    weights: list[float]


@dataclass(frozen=True)
class Batch:
    """Padded documents: ids [B, T]; weights [B, T], 0 at padding."""

    ids: torch.Tensor
    weights: torch.Tensor

    @property
    def tokens(self) -> int:
        return int((self.weights > 0).sum())


def encode_conversation(tokenizer: Any, talk: Conversation) -> Document:
    """The conversation as the server sees it at its last reply: thoughts of earlier replies are left out, and
    such a shortened reply carries no loss; with thinking off every reply follows an empty thinking block."""
    pieces: list[tuple[str, bool]] = []
    for index, message in enumerate(talk.messages):
        role, content, learned = message["role"], message["content"], index in talk.learned
        if index < len(talk.messages) - 1 and content.startswith("<think>"):
            content, learned = visible(content), False
        thinking = EMPTY_THINKING if role == "assistant" and not talk.thinking else ""
        pieces += [
            (f"{TURN_START}{role}\n{thinking}", False),
            (f"{content}{TURN_END}", learned),
            ("\n", False),
        ]
    return _encode(tokenizer, pieces[:-1])


def encode_equations(tokenizer: Any, document: Equations) -> Document:
    pieces = [
        piece for question, result in document.lines for piece in ((question, False), (f"{result}\n", True))
    ]
    return _encode(tokenizer, [*pieces, (END_OF_TEXT, False)])


def equation_document(tokenizer: Any, rng: random.Random) -> Document:
    return encode_equations(tokenizer, equations(rng))


def mixed_document(tokenizer: Any, rng: random.Random) -> Document:
    """Mostly conversations; 15 in 100 documents are bare equations."""
    if rng.random() < 0.15:
        return equation_document(tokenizer, rng)
    return encode_conversation(tokenizer, conversation(rng))


def batches(draw: Callable[[], Document], rng: random.Random, budget: int, pool: int = 12) -> Iterator[Batch]:
    """Endless batches of at most `budget` tokens, padding included. Documents of like length share a batch;
    they are sorted within a pool of `pool` batches, so that little is padded."""
    while True:
        documents: list[Document] = []
        while sum(len(document.ids) for document in documents) < budget * pool:
            documents.append(draw())
        documents.sort(key=lambda document: len(document.ids))
        groups: list[list[Document]] = [[]]
        for document in documents:
            if len(document.ids) * (len(groups[-1]) + 1) > budget:
                groups.append([])
            groups[-1].append(document)
        rng.shuffle(groups)
        yield from (_pad(group) for group in groups)


def _pad(documents: list[Document]) -> Batch:
    length = max(len(document.ids) for document in documents)
    ids = torch.zeros(len(documents), length, dtype=torch.long)
    weights = torch.zeros(len(documents), length)
    for row, document in enumerate(documents):
        ids[row, : len(document.ids)] = torch.tensor(document.ids)
        weights[row, : len(document.ids)] = torch.tensor(document.weights)
    return Batch(ids, weights)


def _encode(tokenizer: Any, pieces: list[tuple[str, bool]]) -> Document:
    ids: list[int] = []
    weights: list[float] = []
    for text, learned in pieces:
        encoded = tokenizer.encode(text, add_special_tokens=False)
        ids += encoded
        weights += [1.0 if learned else BACKGROUND_WEIGHT] * len(encoded)
    return Document(ids, weights)
