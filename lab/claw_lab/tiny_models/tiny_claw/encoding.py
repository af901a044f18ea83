"""Converts training conversations to token ids with loss weights, in the exact format of serving."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from claw_lab.tiny_models.tiny_claw.tokenizer import EMPTY_THINKING, END_OF_TEXT, TURN_END, TURN_START
from tiny_claw.detectors import visible
from tiny_claw.dialogues import Conversation, Equations, conversation, equations

BACKGROUND_WEIGHT = 0.05  # loss weight of tokens that the model reads; its own tokens have 1
FILLER_WEIGHT = 0.003  # loss weight of a long system message
FARTHEST = 30_000  # positions


@dataclass(frozen=True)
class Document:
    """Token ids, their loss weights, and their positions if they have gaps (None: 0, 1, 2, ...), all [T]."""

    ids: list[int]
    weights: list[float]
    positions: list[int] | None = None


@dataclass(frozen=True)
class Batch:
    """Padded documents: ids [B, T]; weights [B, T], 0 at padding; positions [B, T] if any have gaps."""

    ids: torch.Tensor
    weights: torch.Tensor
    positions: torch.Tensor | None

    @property
    def tokens(self) -> int:
        return int((self.weights > 0).sum())


def encode_conversation(tokenizer: Any, talk: Conversation) -> Document:
    """Returns the conversation as the server renders it at its last reply: thoughts of earlier replies are left out,
    and such a shortened reply has no loss; with thinking off every reply follows an empty thinking block."""
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


def mixed_document(
    tokenizer: Any, rng: random.Random, long_share: float = 0.0, lengths: float = 0.0, written: float = 0.0
) -> Document:
    """Draws a document, mostly a conversation; 0.15 are bare equations, `long_share` have a long system message,
    `lengths` of the others are about the length of prose, `written` of them have freely written requests."""
    drawn = rng.random()
    if drawn < 0.15:
        return equation_document(tokenizer, rng)
    if drawn < 1 - long_share:
        return encode_conversation(tokenizer, conversation(rng, lengths=lengths, written=written))
    return stretched(tokenizer, rng, encode_conversation(tokenizer, conversation(rng, long=True)))


def stretched(tokenizer: Any, rng: random.Random, document: Document) -> Document:
    """Returns the document as part of a context up to FARTHEST tokens long: the positions of its system message have
    gaps, so that all distances are trained at the cost of a short text (positional skip-wise training, Zhu et al.
    2023). The system message itself has little weight in the loss."""
    end = document.ids.index(tokenizer.convert_tokens_to_ids(TURN_END))
    weights = [FILLER_WEIGHT] * end + document.weights[end:]
    spare = rng.randint(0, FARTHEST - len(document.ids)) if rng.random() < 0.8 else 0
    cuts = sorted(rng.randint(0, spare) for _ in range(rng.randint(1, 8)))
    places = sorted(rng.randrange(1, end + 1) for _ in cuts)
    positions, shift = [], 0
    for index in range(len(document.ids)):
        while places and index >= places[0]:
            shift = cuts.pop(0)
            places.pop(0)
        positions.append(index + shift)
    return Document(document.ids, weights, positions)


def batches(draw: Callable[[], Document], rng: random.Random, budget: int, pool: int = 12) -> Iterator[Batch]:
    """Yields batches of at most `budget` tokens with padding, without end. Documents are sorted by length within a
    pool of `pool` batches, which reduces padding."""
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
    if all(document.positions is None for document in documents):
        return Batch(ids, weights, None)
    positions = torch.arange(length).repeat(len(documents), 1)
    for row, document in enumerate(documents):
        if document.positions is not None:
            positions[row, : len(document.ids)] = torch.tensor(document.positions)
    return Batch(ids, weights, positions)


def _encode(tokenizer: Any, pieces: list[tuple[str, bool]]) -> Document:
    ids: list[int] = []
    weights: list[float] = []
    for text, learned in pieces:
        encoded = tokenizer.encode(text, add_special_tokens=False)
        ids += encoded
        weights += [1.0 if learned else BACKGROUND_WEIGHT] * len(encoded)
    return Document(ids, weights)
