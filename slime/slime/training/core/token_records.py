"""Records the effect of a training step on every token: `RUN_DIR/token_records/rollout-000012.jsonl`.

One line per sample; its lists cover all response tokens, with null at untrained tokens. The newest files are kept
(--keep-token-records); a program that has copied a file may delete it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from claw_base.files import write_text
from claw_base.run_folder.token_record_files import all_files, file_of
from slime.losses import Distribution, TopKTargets
from slime.training.core.batch import TrainBatch
from slime.training.core.distributed import merge_over_ranks
from slime.training.core.packing import PackedBatch
from slime.training.core.step import Teach, by_sample
from slime.training.schedule import MicroBatch
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags import Arguments

DIGITS = 5


class TokenRecords:
    """Collects the token records of one rollout on one rank; with several epochs, only of the first."""

    def __init__(self, args: Arguments, rollout_id: int, version: int) -> None:
        self._args = args
        self._rollout_id = rollout_id
        self._version = version
        self._log_probs: dict[int, list[float]] = {}
        self._hints: dict[int, list[float]] = {}
        self._gaps: dict[int, list[float]] = {}

    def add_log_probs(self, log_probs: dict[int, list[float]]) -> None:
        """Adds the trainer's log-probs of trained tokens, by sample position."""
        self._log_probs = log_probs | self._log_probs

    def watching(self, teach: Teach, micro_batches: Sequence[MicroBatch]) -> Teach:
        """Wraps `teach` so that its results are recorded."""

        def watched(number: int, packed: PackedBatch, seen: Distribution) -> TopKTargets:
            targets = teach(number, packed, seen)
            taught = targets.valid.any(-1)
            self._hints = by_sample(micro_batches[number], packed, _where(taught, targets.hint)) | self._hints
            self._gaps = (
                by_sample(micro_batches[number], packed, _where(taught, disagreement(targets))) | self._gaps
            )
            return targets

        return watched

    def write(self, data: TrainBatch, rank: int) -> None:
        """Writes the records of all ranks on rank 0; every rank must call this."""
        merged = [merge_over_ranks(one) for one in (self._advantages(data), self._log_probs, self._hints)]
        gaps = merge_over_ranks(self._gaps | self._of_sampled_tokens(data))
        if rank:
            return
        rows = []
        for i in sorted(merged[1]):
            if not data.samples[i].counted:
                continue
            names = ("advantage", "log_prob", "hint", "teacher_gap")
            pairs = zip(names, [one.get(i) for one in (*merged, gaps)], strict=True)
            rows.append(self._row(data.samples[i], {name: v for name, v in pairs if v is not None}))
        run_dir = Path(self._args.run_dir)
        file = file_of(run_dir, self._rollout_id)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, "".join(json.dumps(row) + "\n" for row in rows))
        for old in all_files(run_dir)[: -self._args.keep_token_records]:
            old.unlink(missing_ok=True)

    def _advantages(self, data: TrainBatch) -> dict[int, list[float]]:
        return {i: values.tolist() for i, values in (data.advantages or {}).items()}

    def _of_sampled_tokens(self, data: TrainBatch) -> dict[int, list[float]]:
        """Returns the policy's minus the teacher's log-prob, for a teacher that scored only the sampled
        tokens."""
        pairs = {i: (own, data.teacher_of(i)) for i, own in self._log_probs.items() if i not in self._gaps}
        return {
            i: [a - b for a, b in zip(own, teacher, strict=True)]
            for i, (own, teacher) in pairs.items()
            if teacher is not None
        }

    def _row(self, sample: Sample, values_by_name: dict[str, list[float]]) -> dict[str, Any]:
        about = {"sample": sample.index, "turn_id": sample.metadata.get("turn_id")}
        about |= {"rollout_id": self._rollout_id, "version": self._version}
        if not sample.teacher_tokens_candidates:  # a teacher that reads the plain prompt
            values_by_name.pop("hint", None)
        return about | {name: widened(sample.mask, values) for name, values in values_by_name.items()}


def disagreement(targets: TopKTargets) -> Tensor:
    """Returns the compared ids' part of the KL [T] of the policy from its teacher, in nats."""
    terms = targets.old_log_probs.exp() * (targets.old_log_probs - targets.teacher_log_probs)
    return (terms * targets.valid).sum(-1)


def widened(mask: Sequence[int], values: Sequence[float]) -> list[float | None]:
    """Expands values of trained tokens to a list over all response tokens, rounded; None for NaN and
    untrained tokens."""
    rest = iter(values)
    wide = [next(rest) if kept else None for kept in mask]
    return [None if v is None or v != v else float(f"{v:.{DIGITS}g}") for v in wide]


def _where(taught: Tensor, values: Tensor) -> Tensor:
    return values.float().masked_fill(~taught, float("nan"))
