"""Cache of a frozen teacher's outputs for repeated samples.

Dreams and anchors are repeated in many steps. All ranks must run the same number of forward passes, so each
rank tracks the caches of all ranks: the schedule lists the samples of every rank.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from slime.losses import Candidates
from slime.training.core.packing import pack
from slime.training.schedule import MicroBatch
from slime.types import Sample

MOST_TOKENS = 65_536
"""Largest number of cached tokens on each rank. With 64 likely ids per token they take 50 MB."""


class KeptRows:
    """Least-recently-used cache of the teacher's likely ids.

    Args:
        rank: this process's number among the data-parallel ranks.
    """

    def __init__(self, rank: int, most_tokens: int = MOST_TOKENS) -> None:
        self._rank, self._most_tokens = rank, most_tokens
        self._tokens: dict[int, OrderedDict[bytes, int]] = {}
        self._rows: dict[bytes, tuple[Tensor, Tensor, Tensor]] = {}

    def read(
        self,
        micro_batches: Sequence[MicroBatch],
        samples: Sequence[Sample],
        ask: Callable[[Sequence[MicroBatch]], Candidates],
        device: torch.device,
    ) -> Candidates:
        """Returns the likely ids for the T tokens of this rank's micro-batch, as one hint. Every rank must
        call this.

        Args:
            micro_batches: of all ranks.
            ask: runs the teacher on the samples at these positions, on all ranks.
        """
        keys = {i: _key(samples[i]) for micro_batch in micro_batches for i in micro_batch}
        missing = [
            tuple(i for i in micro_batch if keys[i] not in self._tokens.get(rank, {}))
            for rank, micro_batch in enumerate(micro_batches)
        ]
        if any(missing):
            answer = ask(missing)
            own = missing[self._rank]
            assert answer.own_ids is not None
            counts = [samples[i].effective_response_length for i in own]
            if own:
                present = torch.split(answer.present[0].cpu(), counts)
                log_probs = torch.split(answer.log_probs[0].cpu(), counts)
                ids = torch.split(answer.own_ids[0].to("cpu", torch.int32), counts)
                for i, *parts in zip(own, present, log_probs, ids, strict=True):
                    self._rows[keys[i]] = parts[0], parts[1], parts[2]
        for rank, micro_batch in enumerate(micro_batches):
            self._use(rank, {keys[i]: samples[i].effective_response_length for i in micro_batch})
        own_keys = [keys[i] for i in micro_batches[self._rank]]
        candidates = self._candidates(own_keys, device)
        self._rows = {key: row for key, row in self._rows.items() if key in self._tokens[self._rank]}
        return candidates

    def _candidates(self, keys: Sequence[bytes], device: torch.device) -> Candidates:
        if not keys:
            # The filler of an empty micro-batch has tokens with weight 0.
            length = len(pack([], device).targets)
            nothing = torch.zeros(1, length, 1, device=device)
            return Candidates(nothing[..., 0].bool(), nothing, nothing.long())
        rows = zip(*(self._rows[key] for key in keys), strict=True)
        present, log_probs, ids = (torch.cat(parts)[None].to(device) for parts in rows)
        return Candidates(present, log_probs, ids.long())

    def _use(self, rank: int, used: dict[bytes, int]) -> None:
        """Marks samples as most recently used on a rank, and evicts its oldest ones beyond the limit."""
        kept = self._tokens.setdefault(rank, OrderedDict())
        for key, tokens in used.items():
            kept[key] = tokens
            kept.move_to_end(key)
        total = sum(kept.values())
        while total > self._most_tokens and len(kept) > len(used):
            total -= kept.popitem(last=False)[1]


def _key(sample: Sample) -> bytes:
    """Returns a cache key, equal for samples with the same teacher output."""
    prompts = sample.teacher_tokens_candidates or []
    digest = hashlib.blake2b(digest_size=16)
    for ids in (sample.tokens, *prompts, sample.mask):
        digest.update(array("q", [len(ids), *ids]).tobytes())
    digest.update(array("d", [sample.temperature, sample.response_length]).tobytes())
    return digest.digest()
