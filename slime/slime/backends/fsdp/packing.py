"""Samples of one micro-batch as one flat sequence without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from slime.errors import DataError
from slime.types import Sample


@dataclass(frozen=True)
class PackedBatch:
    """N tokens of several samples, of which T are to be predicted.

    Attributes:
        input_ids, position_ids: [1, N]; positions restart with every sample.
        lengths: tokens of each sample; their sum is N.
        logit_positions: [T], where in N the logits that predict each target stand (one before the target).
        targets: [T] token ids. temperatures: [T].
        counts: targets of each sample; their sum is T.
        is_filler: stands in for an empty micro-batch, so that every rank takes part in every collective.
    """

    input_ids: Tensor
    position_ids: Tensor
    lengths: tuple[int, ...]
    logit_positions: Tensor
    targets: Tensor
    temperatures: Tensor
    counts: tuple[int, ...]
    is_filler: bool = False

    def spread(self, values: Sequence[float]) -> Tensor:
        """One number a sample -> [T]. A filler has no samples and gives zeros."""
        if self.is_filler:
            return torch.zeros(1, device=self.targets.device)
        counts = torch.tensor(self.counts, device=self.targets.device)
        return torch.tensor(values, dtype=torch.float32, device=self.targets.device).repeat_interleave(counts)


def check_samples(samples: Sequence[Sample], vocabulary: int) -> None:
    """Every rank checks all samples before any is run: one that failed alone would leave the others waiting.

    Raises:
        DataError: no prompt token, so nothing predicts the first response token; an id that the model lacks.
    """
    for sample in samples:
        sample.validate()
        if sample.prompt_length < 1:
            raise DataError(f"sample {sample.index!r} has no prompt token; nothing predicts its first token")
        read = chain(
            sample.tokens, *(sample.teacher_tokens_candidates or ()), *(sample.teacher_topk_indices or ())
        )
        unknown = [token for token in read if not 0 <= token < vocabulary]
        if unknown:
            raise DataError(f"sample {sample.index!r} has token {unknown[0]}, the model {vocabulary} tokens")


def pack(samples: Sequence[Sample], device: torch.device, only_trained: bool = True) -> PackedBatch:
    """Packs samples that `check_samples` has passed; no sample gives a filler.

    Args:
        only_trained: predict only tokens with loss mask 1; otherwise every response token.
    """
    if not samples:
        return _filler(device)
    ids: list[int] = []
    positions: list[int] = []
    targets: list[int] = []
    temperatures: list[float] = []
    counts: list[int] = []
    for sample in samples:
        wanted = [i for i, kept in enumerate(sample.mask) if kept or not only_trained]
        first = len(ids) + sample.prompt_length
        targets += [first + i for i in wanted]
        temperatures += [sample.temperature] * len(wanted)
        counts.append(len(wanted))
        positions += range(len(sample.tokens))
        ids += sample.tokens
    flat = torch.tensor(ids, device=device)
    target_positions = torch.tensor(targets, dtype=torch.long, device=device)
    return PackedBatch(
        input_ids=flat.unsqueeze(0),
        position_ids=torch.tensor(positions, device=device).unsqueeze(0),
        lengths=tuple(len(sample.tokens) for sample in samples),
        logit_positions=target_positions - 1,
        targets=flat[target_positions],
        temperatures=torch.tensor(temperatures, device=device),
        counts=tuple(counts),
    )


def trained_values(sample: Sample, values: Sequence[float]) -> list[float]:
    """Of one number a response token those with loss mask 1, in the order of `pack`."""
    return [value for value, kept in zip(values, sample.mask, strict=True) if kept]


def _filler(device: torch.device) -> PackedBatch:
    zero = torch.zeros(1, dtype=torch.long, device=device)
    return PackedBatch(
        input_ids=zero.unsqueeze(0),
        position_ids=zero.unsqueeze(0),
        lengths=(1,),
        logit_positions=zero,
        targets=zero,
        temperatures=torch.ones(1, device=device),
        counts=(),
        is_filler=True,
    )
