"""How far the trainer's log-probs are from those that the engine reported while sampling.

Three kinds of turns are told apart, because only in the first do both sides speak of the same weights: turns
written by the version that is trained on (or by an unknown one), turns written by one older version
(`_stale`) and turns that span a weight update (`_spanning`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from slime.training.core.distributed import max_over_ranks, sum_over_ranks
from slime.training.core.packing import trained_values
from slime.types import Sample

logger = logging.getLogger(__name__)

METRIC = "train_rollout_logprob_abs_diff"
KINDS = ("", "_stale", "_spanning")


@dataclass
class Mismatch:
    """Collects |trainer - engine| over trained tokens; the trainer holds the weights of `version`."""

    version: int
    total: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    count: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    largest: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))

    def add(self, sample: Sample, trainer_log_probs: list[float]) -> None:
        """Compares the trained tokens of one sample; a sample without engine log-probs is left out."""
        if sample.rollout_log_probs is None:
            return
        kind = self._kind(sample)
        engine = trained_values(sample, sample.rollout_log_probs)
        differences = [abs(a - b) for a, b in zip(trainer_log_probs, engine, strict=True)]
        self.total[kind] += sum(differences)
        self.count[kind] += len(differences)
        self.largest[kind] = max([self.largest[kind], *differences])

    def metrics(self) -> dict[str, float]:
        """Mean and `_max` of every kind that occurred on any rank. Every rank must call this."""
        total, count = sum_over_ranks(self.total), sum_over_ranks(self.count)
        largest = max_over_ranks(self.largest)
        found: dict[str, float] = {}
        for kind in KINDS:
            if count[kind]:
                found[f"{METRIC}{kind}"] = total[kind] / count[kind]
                found[f"{METRIC}_max{kind}"] = largest[kind]
        return found

    @staticmethod
    def alarm(metrics: dict[str, float], limit: float) -> dict[str, float]:
        """1 where tokens of the present weights differ by more than `limit` nats on average, else 0; says so too.

        Weights that are the same must give the same numbers: such a gap is a fault of the engine or of the trainer
        (another dtype, temperature or template), and it enters every importance ratio.
        """
        if not limit or METRIC not in metrics:
            return {}
        gap = metrics[METRIC]
        if gap > limit:
            logger.warning(
                "trainer and engine disagree on the same weights by %.3f nats a token (limit %.3f); look at "
                "temperature, dtype and chat template, or weigh tokens with --use-tis",
                gap,
                limit,
            )
        return {f"{METRIC}_alarm": float(gap > limit)}

    def _kind(self, sample: Sample) -> str:
        if len(sample.versions) > 1:
            return "_spanning"
        return "" if sample.versions <= {self.version} else "_stale"
