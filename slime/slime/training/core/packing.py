"""Samples of one micro-batch as one flat sequence without padding, in which equal prompts stand once.

A policy's hidden states of a prompt do not depend on what answers it. So the samples of one group share their prompt:
its tokens run through the model once, every response attends to them, and gradients add up by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import torch
from torch import Tensor

from slime.errors import DataError
from slime.types import Sample
from slime.vision.place import ImagePlace
from slime.vision.positions import rope_positions

Layout = tuple[tuple[int, ...], ...]
"""For each run of tokens: the length of its trunk, then those of the branches that follow it one after the other.
Every branch sees the trunk and itself."""


@dataclass(frozen=True)
class PackedBatch:
    """N tokens of several samples, of which T are to be predicted.

    Attributes:
        input_ids, position_ids: [1, N]; positions restart with every sample. With images positions are [3, 1, N].
        layout: which of the N tokens see each other; the sum of its numbers is N.
        lengths: tokens of each sample, prompt and response.
        logit_positions: [T], where in N the logits that predict each target stand. Samples that share a prompt
            name its last token several times.
        targets: [T] token ids. temperatures: [T].
        counts: targets of each sample; their sum is T.
        observed: tokens of each sample that somebody else wrote and that are to be predicted too: as many more targets,
            positions and temperatures stand behind the T. `apart` cuts them off.
        images: those among the N tokens.
        is_filler: stands in for an empty micro-batch, so that every rank takes part in every collective.
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

    def apart(self) -> tuple[PackedBatch, Tensor]:
        """The pack with its T targets alone, and the targets that somebody else wrote."""
        size = len(self.targets) - sum(self.observed)
        own = replace(
            self,
            logit_positions=self.logit_positions[:size],
            targets=self.targets[:size],
            temperatures=self.temperatures[:size],
            observed=(),
        )
        return own, self.targets[size:]

    def spread(self, values: Sequence[float]) -> Tensor:
        """One number a sample -> [T]. A filler has no samples and gives zeros."""
        if self.is_filler:
            return torch.zeros(1, device=self.targets.device)
        counts = torch.tensor(self.counts, device=self.targets.device)
        return torch.tensor(values, dtype=torch.float32, device=self.targets.device).repeat_interleave(counts)


def check_samples(samples: Sequence[Sample], vocabulary: int, sees: bool = False) -> None:
    """Every rank checks all samples before any is run: one that failed alone would leave the others waiting.

    Args:
        sees: the model takes images.

    Raises:
        DataError: no prompt token, so nothing predicts the first response token; an id, of the sample or of its teacher,
            that the model lacks; images, where the model takes none.
    """
    for sample in samples:
        sample.validate()
        if sample.images and not sees:
            raise DataError(
                f"sample {sample.index!r} has images, which the model that is trained does not take"
            )
        if sample.prompt_length < 1:
            raise DataError(f"sample {sample.index!r} has no prompt token; nothing predicts its first token")
        said = chain(sample.tokens, sample.next_tokens)
        unknown = [token for token in said if not 0 <= token < vocabulary]
        if unknown:
            raise DataError(f"sample {sample.index!r} has token {unknown[0]}, the model {vocabulary} tokens")
        read = chain(*(sample.teacher_tokens_candidates or ()), *(sample.teacher_topk_indices or ()))
        lacking = next((token for token in read if not 0 <= token < vocabulary), None)
        if lacking is not None:
            raise DataError(
                f"sample {sample.index!r}: its teacher has token {lacking}, the model {vocabulary} tokens"
            )


def pack(
    samples: Sequence[Sample],
    device: torch.device,
    only_trained: bool = True,
    share_prompts: bool = True,
    observed: bool = False,
) -> PackedBatch:
    """Packs samples that `check_samples` has passed; no sample gives a filler.

    Args:
        only_trained: predict only tokens with loss mask 1; otherwise every response token.
        share_prompts: let equal prompts stand once; otherwise the pack is the samples one after the other.
        observed: predict too what somebody else wrote, within the response and behind it.
    """
    if not samples:
        return _filler(device)
    groups = _alike(samples) if share_prompts else _apart(samples)
    tokens, sources = _lay_out(samples, groups, behind=observed)
    wanted = [[t for t, kept in enumerate(s.mask) if kept or not only_trained] for s in samples]
    temperatures = [s.temperature for s, predicted in zip(samples, wanted, strict=True) for _ in predicted]
    targets = [
        s.tokens[s.prompt_length + t] for s, predicted in zip(samples, wanted, strict=True) for t in predicted
    ]
    logit_positions = [sources[i][t] for i, predicted in enumerate(wanted) for t in predicted]
    seen = [observed_targets(sample) if observed else {} for sample in samples]
    logit_positions += [sources[i][t] for i, others in enumerate(seen) for t in others]
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
        counts=tuple(len(predicted) for predicted in wanted),
        images=images,
        observed=tuple(map(len, seen)) if observed else (),
    )


def observed_targets(sample: Sample) -> dict[int, int]:
    """Tokens that somebody else wrote, within the response and behind it, by their place counted from its start; none of
    a removed sample."""
    if sample.remove_sample:
        return {}
    tokens = sample.tokens[sample.prompt_length :] + sample.next_tokens
    return {t: tokens[t] for t, seen in enumerate(sample.observed or ()) if seen}


@dataclass
class _Tokens:
    """What runs through the model."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    layout: list[tuple[int, ...]] = field(default_factory=list)
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    """For each piece its sample, where it begins there, and here."""

    def add(self, tokens: Sequence[int], sample: int, position: int = 0) -> int:
        """Appends tokens of a sample that follow on `position` others, and returns where they start."""
        start = len(self.ids)
        self.pieces.append((sample, position, start))
        self.ids += tokens
        self.positions += range(position, position + len(tokens))
        return start

    def _ends(self) -> list[int]:
        return [start for _, _, start in self.pieces[1:]] + [len(self.ids)]

    def images(self, samples: Sequence[Sample]) -> tuple[ImagePlace, ...]:
        """Of all samples, each where its tokens stand here."""
        return tuple(
            image.moved(start - first)
            for (i, first, start), end in zip(self.pieces, self._ends(), strict=True)
            for image in samples[i].images
            if first <= image.start < first + end - start
        )

    def position_ids(self, samples: Sequence[Sample], device: torch.device) -> Tensor:
        """[1, N], or with images among the samples [3, 1, N]."""
        flat = torch.tensor(self.positions, device=device).unsqueeze(0)
        if not samples:
            return flat
        found = flat.repeat(3, 1)
        for (i, first, start), end in zip(self.pieces, self._ends(), strict=True):
            last = first + end - start
            found[:, start:end] = rope_positions(last, [x for x in samples[i].images if x.start < last])[
                :, first:
            ]
        return found.unsqueeze(1)


def _lay_out(
    samples: Sequence[Sample], groups: list[list[int]], behind: bool
) -> tuple[_Tokens, dict[int, list[int]]]:
    """The tokens, with those `behind` the responses or without, and where the logits of each sample's tokens from its
    response on stand."""
    tokens = _Tokens()
    sources: dict[int, list[int]] = {}
    for members in groups:
        one = samples[members[0]]
        prompt, branches = one.prompt_length, members if len(members) > 1 else []
        rest = {i: samples[i].tokens[prompt:] + (samples[i].next_tokens if behind else []) for i in members}
        start = tokens.add(one.tokens[:prompt] + ([] if branches else rest[members[0]]), members[0])
        for i in members:
            first = tokens.add(rest[i], i, prompt) if branches else start + prompt
            sources[i] = [start + prompt - 1, *range(first, first + len(rest[i]) - 1)]
        trunk = prompt if branches else prompt + len(rest[members[0]])
        tokens.layout.append((trunk, *(len(rest[i]) for i in branches)))
    return tokens, sources


def _apart(samples: Sequence[Sample]) -> list[list[int]]:
    return [[i] for i in range(len(samples))]


def _alike(samples: Sequence[Sample]) -> list[list[int]]:
    """Positions of the samples, those with the same prompt, its images too, and a response together, in the order of
    the first."""
    found: dict[tuple[object, ...], list[int]] = {}
    for i, sample in enumerate(samples):
        prompt = sample.tokens[: sample.prompt_length]
        seen = (image for image in sample.images if image.start < sample.prompt_length)
        found.setdefault((*prompt, *seen) if sample.response_length else (-1, i), []).append(i)
    return list(found.values())


def trained_values(sample: Sample, values: Sequence[float]) -> list[float]:
    """Of one number a response token those with loss mask 1, in the order of `pack`."""
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
