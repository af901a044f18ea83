"""Packs the samples of a micro-batch into one flat sequence without padding, in which common prefixes appear once.

In a policy, the hidden state of a token depends only on the tokens before it. Samples with a common prefix (turns of
one session, answers to one prompt) therefore share its tokens: the model processes them once, all continuations
attend to them, and autograd sums their gradients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, Union

import torch
from torch import Tensor

from slime.errors import DataError
from slime.training.prefixes import Node, Prefixes
from slime.types import Sample
from slime.vision.place import ImagePlace
from slime.vision.positions import rope_positions

Run = tuple[Union[int, "Run"], ...]
Layout = tuple[Run, ...]
"""Layout of each run of tokens: the length of its trunk, then its branches in order. A branch is a length, or
itself a run. Every branch attends to the trunk and itself, but not to its siblings."""


class Piece(NamedTuple):
    """A trunk or branch of a layout.

    Attributes:
        start, length: its tokens in the pack.
        path: indices of the preceding pieces, starting at the root of its run.
        before: number of tokens on the path.
        until: index of the first later piece that does not descend from this one.
    """

    start: int
    length: int
    path: tuple[int, ...]
    before: int
    until: int


@lru_cache(maxsize=8)
def pieces_of(layout: Layout) -> tuple[Piece, ...]:
    """Returns the pieces of a layout, in the order of the pack."""
    pieces: list[Piece] = []
    start = 0
    left: list[tuple[int | Run, tuple[int, ...]]] = [(run, ()) for run in reversed(layout)]
    while left:
        run, path = left.pop()
        length, *branches = (run,) if isinstance(run, int) else run
        assert isinstance(length, int)
        number = len(pieces)
        before = pieces[path[-1]].before + pieces[path[-1]].length if path else 0
        pieces.append(Piece(start, length, path, before, number + 1))
        for i in path:
            pieces[i] = pieces[i]._replace(until=number + 1)
        left += [(branch, (*path, number)) for branch in reversed(branches)]
        start += length
    return tuple(pieces)


@dataclass(frozen=True)
class PackedBatch:
    """A pack of N tokens of several samples, T of which are predicted.

    Attributes:
        input_ids, position_ids: [1, N]; positions count from the start of each sample. With images: [3, 1,
            N].
        layout: which of the N tokens attend to each other; its lengths sum to N.
        lengths: tokens of each sample, prompt and response.
        logit_positions: [T], index in N of the logits that predict each target. A token before several
            branches is listed once for each.
        targets: [T] token ids.
        temperatures: [T].
        counts: targets of each sample; they sum to T.
        observed: number of predicted tokens in each sample that the policy did not write. Their targets,
            positions and temperatures follow the T; `without_observed` removes them.
        images: images among the N tokens.
        is_filler: replaces an empty micro-batch, so that every rank takes part in every collective.
    """

    input_ids: Tensor
    position_ids: Tensor
    layout: Layout
    lengths: tuple[int, ...]
    logit_positions: Tensor
    targets: Tensor
    temperatures: Tensor
    counts: tuple[int, ...]
    is_filler: bool = False
    images: tuple[ImagePlace, ...] = ()
    observed: tuple[int, ...] = ()

    def without_observed(self) -> tuple[PackedBatch, Tensor]:
        """Returns the pack with its T targets only, and the removed targets that the policy did not write."""
        size = len(self.targets) - sum(self.observed)
        own = replace(
            self,
            logit_positions=self.logit_positions[:size],
            targets=self.targets[:size],
            temperatures=self.temperatures[:size],
            observed=(),
        )
        return own, self.targets[size:]

    def at_ends(self, values: Sequence[float]) -> Tensor:
        """Returns [T] with one number per sample at its last target, and 0 elsewhere; zeros for a filler."""
        placed = torch.zeros(1 if self.is_filler else sum(self.counts), device=self.targets.device)
        if not self.is_filler:
            ends = torch.tensor(self.counts, device=self.targets.device).cumsum(0) - 1
            placed[ends] = torch.tensor(values, dtype=torch.float32, device=self.targets.device)
        return placed

    def spread(self, values: Sequence[float]) -> Tensor:
        """Expands one number per sample to [T]; zeros for a filler."""
        if self.is_filler:
            return torch.zeros(1, device=self.targets.device)
        counts = torch.tensor(self.counts, device=self.targets.device)
        return torch.tensor(values, dtype=torch.float32, device=self.targets.device).repeat_interleave(counts)


def check_samples(samples: Sequence[Sample], vocabulary: int, sees: bool = False) -> None:
    """Checks all samples on every rank before training, because a rank that fails alone would block the
    others.

    Args:
        sees: the model supports images.

    Raises:
        DataError: a sample has no prompt token, so its first response token cannot be predicted; an id of a
            sample or its teacher is outside the vocabulary; a sample has images that the model does not
            support.
    """
    for sample in samples:
        sample.validate()
        if sample.images and not sees:
            raise DataError(
                f"sample {sample.index!r} has images, but the trained model does not support images"
            )
        if sample.prompt_length < 1:
            raise DataError(
                f"sample {sample.index!r} has no prompt token, so its first response token cannot be "
                "predicted"
            )
        ids = chain(sample.tokens, sample.next_tokens)
        unknown = [token for token in ids if not 0 <= token < vocabulary]
        if unknown:
            raise DataError(
                f"sample {sample.index!r} has token id {unknown[0]}, but the model has only "
                f"{vocabulary} tokens"
            )
        read = chain(*(sample.teacher_tokens_candidates or ()), *(sample.teacher_topk_indices or ()))
        lacking = next((token for token in read if not 0 <= token < vocabulary), None)
        if lacking is not None:
            raise DataError(
                f"the teacher of sample {sample.index!r} has token id {lacking}, but the model "
                f"has only {vocabulary} tokens"
            )


def pack(
    samples: Sequence[Sample],
    device: torch.device,
    only_trained: bool = True,
    merge: bool = True,
    observed: bool = False,
) -> PackedBatch:
    """Packs samples that `check_samples` has accepted; an empty list gives a filler.

    Args:
        only_trained: predict only tokens with loss mask 1; otherwise, every response token.
        merge: include common prefixes once; otherwise, the samples are concatenated.
        observed: also predict tokens that the policy did not write, in the response and after it.
    """
    if not samples:
        return _filler(device)
    tokens, places = _lay_out(samples, merge, behind=observed)
    positions = [[t for t, kept in enumerate(s.mask) if kept or not only_trained] for s in samples]
    temperatures = [s.temperature for s, predicted in zip(samples, positions, strict=True) for _ in predicted]
    targets = [
        s.tokens[s.prompt_length + t]
        for s, predicted in zip(samples, positions, strict=True)
        for t in predicted
    ]
    seen = [observed_targets(sample) if observed else {} for sample in samples]
    logit_positions = [
        places[i][t] for asked in (positions, seen) for i, tokens_of in enumerate(asked) for t in tokens_of
    ]
    targets += [token for others in seen for token in others.values()]
    temperatures += [1.0 for others in seen for _ in others]
    images = tokens.images(samples)
    return PackedBatch(
        input_ids=torch.tensor(tokens.ids, device=device).unsqueeze(0),
        position_ids=tokens.position_ids(samples if images else (), device),
        layout=tuple(tokens.layout),
        lengths=tuple(len(sample.tokens) for sample in samples),
        logit_positions=torch.tensor(logit_positions, dtype=torch.long, device=device),
        targets=torch.tensor(targets, dtype=torch.long, device=device),
        temperatures=torch.tensor(temperatures, device=device),
        counts=tuple(len(predicted) for predicted in positions),
        images=images,
        observed=tuple(map(len, seen)) if observed else (),
    )


def observed_targets(sample: Sample) -> dict[int, int]:
    """Returns the tokens that the policy did not write, in and after the response, by index from the
    response's start.

    Empty for a removed sample.
    """
    if sample.remove_sample:
        return {}
    tokens = sample.tokens[sample.prompt_length :] + sample.next_tokens
    return {t: tokens[t] for t, seen in enumerate(sample.observed or ()) if seen}


@dataclass
class _Tokens:
    """Builds the token sequence of a pack."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    layout: list[Run] = field(default_factory=list)
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    """For each piece: its sample, its start in the sample, and its start in the pack."""

    def add(self, tokens: Sequence[int], sample: int, position: int = 0) -> int:
        """Appends tokens of a sample, starting at position `position`; returns their start in the pack."""
        start = len(self.ids)
        self.pieces.append((sample, position, start))
        self.ids += tokens
        self.positions += range(position, position + len(tokens))
        return start

    def _ends(self) -> list[int]:
        return [start for _, _, start in self.pieces[1:]] + [len(self.ids)]

    def images(self, samples: Sequence[Sample]) -> tuple[ImagePlace, ...]:
        """Returns the images of all samples, with the position of their tokens in the pack."""
        return tuple(
            image.moved(start - first)
            for (i, first, start), end in zip(self.pieces, self._ends(), strict=True)
            for image in samples[i].images
            if first <= image.start < first + end - start
        )

    def position_ids(self, samples: Sequence[Sample], device: torch.device) -> Tensor:
        """Returns position ids [1, N], or [3, 1, N] if a sample has images."""
        flat = torch.tensor(self.positions, device=device).unsqueeze(0)
        if not samples:
            return flat
        positions = flat.repeat(3, 1)
        for (i, first, start), end in zip(self.pieces, self._ends(), strict=True):
            last = first + end - start
            positions[:, start:end] = rope_positions(last, [x for x in samples[i].images if x.start < last])[
                :, first:
            ]
        return positions.unsqueeze(1)


def _lay_out(samples: Sequence[Sample], merge: bool, behind: bool) -> tuple[_Tokens, list[list[int]]]:
    """Returns the pack's tokens, and the index of each sample's tokens, starting with the last one of its
    prompt.

    `behind`: include the tokens after the responses.
    """
    sequences = [sample.tokens + (sample.next_tokens if behind else []) for sample in samples]
    unmerged = [Node(i, 0, len(sequence), [i]) for i, sequence in enumerate(sequences)]
    tokens = _Tokens()
    places: list[list[int]] = [[] for _ in samples]
    for root in common_starts(samples, behind).trees(range(len(samples))) if merge else unmerged:
        nodes = root.preorder()
        for node in nodes:
            here = tokens.add(sequences[node.of][node.start : node.end], node.of, node.start)
            for i in node.members:
                first = max(node.start, samples[i].prompt_length - 1)
                last = min(node.end, len(sequences[i]))
                places[i] += range(here + first - node.start, here + last - node.start)
        tokens.layout.append(_run(nodes))
    return tokens, places


def _run(nodes: Sequence[Node]) -> Run:
    """Returns the layout of a tree whose nodes precede their children."""
    runs: dict[int, Run] = {}
    for node in reversed(nodes):
        branches = (runs[id(child)] if child.children else child.end - child.start for child in node.children)
        runs[id(node)] = (node.end - node.start, *branches)
    return runs[id(nodes[0])]


def common_starts(samples: Sequence[Sample], behind: bool = False) -> Prefixes:
    """Returns the common prefixes of the samples.

    Image tokens are equal only if the images are. Every response token counts as a target, because old
    log-probs cover all of them.

    Args:
        behind: include the tokens after the responses.
    """
    sequences = [
        (_with_images(sample) if sample.images else sample.tokens) + (sample.next_tokens if behind else [])
        for sample in samples
    ]
    targets = [sample.response_length + (len(sample.next_tokens) if behind else 0) for sample in samples]
    return Prefixes(sequences, targets)


def _with_images(sample: Sample) -> list[int]:
    """Returns a sample's tokens, in which each image's tokens are replaced by a number for the image."""
    tokens = list(sample.tokens)
    for image in sample.images:
        named = hashlib.blake2b(repr((image.grid, image.file)).encode(), digest_size=8)
        tokens[image.start : image.end] = [int.from_bytes(named.digest())] * image.length
    return tokens


def trained_values(sample: Sample, values: Sequence[float]) -> list[float]:
    """Selects the values with loss mask 1 from one value per response token, in the order of `pack`."""
    return [value for value, kept in zip(values, sample.mask, strict=True) if kept]


def _filler(device: torch.device) -> PackedBatch:
    zero = torch.zeros(1, dtype=torch.long, device=device)
    return PackedBatch(
        input_ids=zero.unsqueeze(0),
        position_ids=zero.unsqueeze(0),
        layout=((1,),),
        lengths=(1,),
        logit_positions=zero,
        targets=zero,
        temperatures=torch.ones(1, device=device),
        counts=(),
        is_filler=True,
    )
