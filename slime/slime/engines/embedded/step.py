"""Flattened inputs of one forward pass: one token per decoding row, then the prompt chunks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from slime.engines.embedded.attention import ChunkSpan, DecodeSpan, RaggedBatch
from slime.engines.embedded.images import StepImages
from slime.engines.embedded.model import ServedModel
from slime.engines.embedded.scheduler import Chunk, Scheduler
from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.slab import Slab


@dataclass(frozen=True)
class Scored:
    """Logits rows [row, row + count) give the log-probs of the prompt tokens from `first` on."""

    sequence: Sequence
    row: int
    first: int
    count: int


@dataclass
class EngineStep:
    """Inputs of one forward pass, and the requested logits.

    Attributes:
        keep: offsets in the flattened batch whose logits are computed.
        sampled_at: rows of those logits from which the next tokens of `sampled` are drawn.
    """

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    keep: list[int] = field(default_factory=list)
    sampled: list[Sequence] = field(default_factory=list)
    sampled_at: list[int] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    images: list[StepImages] = field(default_factory=list)
    batch: RaggedBatch = field(default_factory=lambda: RaggedBatch([], []))

    @property
    def sequences(self) -> list[Sequence]:
        """Returns all sequences in the step."""
        decoding = [row for span in self.batch.decode for row in span.slab.rows]
        return decoding + [chunk.sequence for chunk in self.chunks]

    def assemble(self, scheduler: Scheduler, model: ServedModel) -> None:
        """Fills the step with the scheduler's plan; it stays empty if nothing can run.

        A prompt's images are encoded together with its first token, by the same weights.
        """
        self.chunks = scheduler.plan()
        for slab in scheduler.slabs:
            self._add_rows(slab, model.device)
        for chunk in self.chunks:
            if chunk.first == 0 and chunk.sequence.images is not None:
                assert model.placed is not None
                chunk.sequence.images.look(model.placed, model.device)
        for chunk in self.chunks:
            self._add_chunk(chunk)
        if self.ids and not self.keep:
            self.keep.append(0)  # the model computes at least one row of logits

    def _add_rows(self, slab: Slab[Sequence], device: torch.device) -> None:
        start, positions = len(self.ids), [row.cached for row in slab.rows]
        index = torch.arange(len(positions), device=device)
        where = torch.tensor(positions, device=device)
        self.batch.decode.append(DecodeSpan(slab, start, where, index, max(positions) + 1))
        self._want(slab.rows, range(start, start + len(positions)))
        self.ids.extend(row.output_ids[-1] for row in slab.rows)
        self.positions.extend(row.cached + row.shift for row in slab.rows)

    def _add_chunk(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        if sequence.prefill is None:
            raise RuntimeError(f"request {sequence.rid} is scheduled without a prefill cache")
        start = len(self.ids)
        self.batch.chunks.append(ChunkSpan(sequence.prefill, start, chunk.first, chunk.last))
        self.ids.extend(sequence.tokens(chunk.first, chunk.last))
        self.positions.extend(range(chunk.first, chunk.last))
        if sequence.images is not None:
            self.images.append(sequence.images.of_chunk(chunk.first, chunk.last, start))
        self._score(chunk, start - chunk.first)
        if chunk.completes and sequence.max_new_tokens > 0:
            self._want([sequence], [len(self.ids) - 1])

    def _score(self, chunk: Chunk, shift: int) -> None:
        """Requests the logits that predict the chunk's prompt tokens; `shift` maps positions to offsets."""
        first = max(chunk.sequence.next_scored, chunk.first + 1)
        last = min(chunk.last + 1, len(chunk.sequence.prompt_ids))
        if first < last:
            self.scored.append(Scored(chunk.sequence, len(self.keep), first, last - first))
            self.keep.extend(range(first - 1 + shift, last - 1 + shift))

    def _want(self, rows: list[Sequence], offsets: Iterable[int]) -> None:
        self.sampled_at.extend(range(len(self.keep), len(self.keep) + len(rows)))
        self.sampled.extend(rows)
        self.keep.extend(offsets)
