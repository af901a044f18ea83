"""What samples say of their teacher."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from slime.errors import DataError
from slime.losses import Candidates
from slime.losses.teacher_topk import OUTSIDE
from slime.training.core.packing import PackedBatch
from slime.types import Sample


def check_hints(samples: Sequence[Sample]) -> None:
    """Raises DataError for a sample that a loss without rewards cannot use, as it has no teacher."""
    for sample in samples:
        if not sample.teacher_tokens_candidates and sample.effective_response_length:
            raise DataError(
                f"sample {sample.index!r} has no hint, so no teacher; this loss has nothing else to train"
            )


def check_topk(k: int, samples: Sequence[Sample], every: bool) -> None:
    """Raises DataError for a sample whose teacher said less than --distill-topk `k` asks for, or, where `every` one
    needs a teacher, has none."""
    for sample in samples:
        ids = sample.teacher_topk_indices
        if ids is None and every and sample.effective_response_length:
            raise DataError(f"sample {sample.index!r} has no teacher_topk_indices, which this loss needs")
        if ids and len(ids[0]) < k:
            raise DataError(
                f"sample {sample.index!r} brings {len(ids[0])} ids a token from its teacher, --distill-topk asks for {k}"
            )


def given_topk(samples: Sequence[Sample], packed: PackedBatch, k: int) -> Candidates:
    """What the samples bring: the K likeliest ids of their one teacher."""
    length, device = len(packed.targets), packed.targets.device
    present = torch.zeros(1, length, dtype=torch.bool, device=device)
    log_probs = torch.zeros(1, length, k, device=device)
    ids = torch.zeros(1, length, k, dtype=torch.long, device=device)
    ends = [0, *accumulate(packed.counts)]
    for (start, end), sample in zip(pairwise(ends), samples, strict=True):
        if sample.teacher_topk_indices is None or sample.teacher_topk_log_probs is None:
            continue
        kept = [t for t, trained in enumerate(sample.mask) if trained]
        present[0, start:end] = True
        ids[0, start:end] = torch.tensor([sample.teacher_topk_indices[t][:k] for t in kept], device=device)
        rows = [sample.teacher_topk_log_probs[t][:k] for t in kept]
        log_probs[0, start:end] = torch.tensor(rows, device=device)
    return Candidates(present, log_probs, ids)


def hint_groups(samples: Sequence[Sample], packed: PackedBatch) -> Tensor:
    """[T]: tokens that get one hint together, which are those of a sample, or of a step of an agent."""
    found: list[int] = []
    number = 0
    for sample in samples:
        spans = (sample.metadata.get("step_wise") or {}).get("step_token_spans")
        wide = [OUTSIDE if spans else number] * sample.response_length
        for start, end in spans or ():
            wide[start:end] = [number] * len(wide[start:end])
            number += 1
        number += 0 if spans else 1
        found += [group for group, trained in zip(wide, sample.mask, strict=True) if trained]
    return torch.tensor(found if samples else [0], device=packed.targets.device)
