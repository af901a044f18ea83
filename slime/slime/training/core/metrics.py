"""Metrics of a whole rollout, equal on every rank: sizes, advantages, token ages, and log-prob mismatch with
engines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slime.losses import LossSpec, TopKTargets, group_counts
from slime.training.core.batch import TrainBatch, ages, compares_groups
from slime.training.core.distributed import max_over_ranks, sum_over_ranks
from slime.training.core.packing import trained_values
from slime.training.schedule import Schedule
from slime.types import Sample, trajectories_of

if TYPE_CHECKING:
    from slime.flags.distillation import StalenessArguments
    from slime.flags.sides import ObjectiveSide

logger = logging.getLogger(__name__)

METRIC = "train_rollout_logprob_abs_diff"
KINDS = ("", "_stale", "_spanning")
LEAST = 1e-6
"""Smallest probability of all ids that are not compared; smaller values are rounding errors."""


def mean_of_steps(steps: list[dict[str, float]]) -> dict[str, float]:
    """Returns the mean of every metric over the steps that report it."""
    by_name: dict[str, list[float]] = {}
    for step in steps:
        for name, value in step.items():
            by_name.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in by_name.items()}


def rollout_metrics(samples: Sequence[Sample], schedule: Schedule) -> dict[str, float]:
    trained = sorted(i for step in schedule.steps for i in step.samples if samples[i].counted)
    return {
        "num_steps": float(len(schedule.steps)),
        "num_samples": float(len(trained)),
        "num_tokens": float(sum(step.num_tokens for step in schedule.steps)),
        "num_dropped": float(len(schedule.dropped)),
        "response_length": sum(samples[i].response_length for i in trained) / max(len(trained), 1),
    }


def group_metrics(args: ObjectiveSide, spec: LossSpec, samples: Sequence[Sample]) -> dict[str, float]:
    """Returns the number of compared groups, and of groups without a training signal (one trajectory or equal
    rewards)."""
    without = args.advantage_estimator in ("step_wise", "on_policy_distillation")
    if without or not spec.needs_advantages or not compares_groups(args):
        return {}
    judged = [sample for sample in samples if sample.divergence is None]
    rewards = [sample.get_reward_value(args.reward_key) for sample in judged]
    return group_counts(rewards, [sample.group_index for sample in judged], trajectories_of(judged))


def advantage_metrics(
    data: TrainBatch, add_up: Callable[[Tensor], Tensor], use_opd: bool
) -> dict[str, float]:
    """Returns the mean over samples of their mean token advantage. Every rank must call this.

    With distillation, also returns the mean of old minus teacher log-prob, and the number of samples with a
    teacher.
    """
    if data.advantages is None:
        return {}
    own = [i for i in data.advantages if data.samples[i].counted]
    gaps = [_gap(data, i) for i in own] if use_opd else []
    taught_gaps = [gap for gap in gaps if gap is not None]
    sums = [
        sum(float(data.advantages[i].mean()) for i in own),
        len(own),
        sum(taught_gaps),
    ]
    total, count, gap, taught = add_up(torch.tensor([*sums, len(taught_gaps)], dtype=torch.float64)).tolist()
    if not count:
        return {}
    metrics = {"advantage": total / count}
    return metrics | ({"opd_reverse_kl": gap / max(taught, 1), "opd_samples": taught} if use_opd else {})


def _gap(data: TrainBatch, i: int) -> float | None:
    teacher = data.teacher_of(i)
    if teacher is None:
        return None
    return float((torch.tensor(data.old_log_probs[i]) - torch.tensor(teacher)).mean())


def staleness_metrics(
    samples: Sequence[Sample], schedule: Schedule, version: int, args: StalenessArguments
) -> dict[str, float]:
    """Returns statistics of the trained tokens' ages in versions.

    These are mean and largest age, share of older tokens, and numbers of tokens and samples beyond
    --max-staleness.
    """
    token_ages = [
        ages(samples[i], version) for step in schedule.steps for i in step.samples if samples[i].counted
    ]
    count = max(sum(map(len, token_ages)), 1)
    metrics = {
        "staleness": sum(map(sum, token_ages)) / count,
        "staleness_max": float(max((max(of_sample) for of_sample in token_ages if of_sample), default=0)),
        "older_tokens": sum(age > 0 for of_sample in token_ages for age in of_sample) / count,
    }
    if args.max_staleness is not None:
        too_old = [sum(age > args.max_staleness for age in of_sample) for of_sample in token_ages]
        metrics["stale_tokens"] = float(sum(too_old))
        metrics["stale_samples"] = float(sum(number > 0 for number in too_old))
    return metrics


@dataclass
class Mismatch:
    """Collects |trainer - engine| of the log-probs of trained tokens; the trainer has the weights of
    `version`.

    Three kinds of turns are counted separately, because both sides use the same weights only in the first: turns of
    `version` or an unknown version, turns of one older version (`_stale`), and turns that span a weight update
    (`_spanning`).
    """

    version: int
    total: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    count: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    largest: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))

    def add(self, sample: Sample, trainer_log_probs: list[float]) -> None:
        """Adds the trained tokens of one sample.

        Samples without engine log-probs, repeated samples, and tokens that the policy did not sample
        (`unsampled` in the metadata) are skipped.
        """
        if sample.rollout_log_probs is None or not sample.counted or sample.metadata.get("unsampled"):
            return
        kind = self._kind(sample)
        engine = trained_values(sample, sample.rollout_log_probs)
        differences = [abs(a - b) for a, b in zip(trainer_log_probs, engine, strict=True)]
        self.total[kind] += sum(differences)
        self.count[kind] += len(differences)
        self.largest[kind] = max([self.largest[kind], *differences])

    def metrics(self) -> dict[str, float]:
        """Returns the mean and the `_max` of each kind that occurred on any rank. Every rank must call this."""
        total, count = sum_over_ranks(self.total), sum_over_ranks(self.count)
        largest = max_over_ranks(self.largest)
        metrics: dict[str, float] = {}
        for kind in KINDS:
            if count[kind]:
                metrics[f"{METRIC}{kind}"] = total[kind] / count[kind]
                metrics[f"{METRIC}_max{kind}"] = largest[kind]
        return metrics

    @staticmethod
    def alarm(metrics: dict[str, float], limit: float) -> dict[str, float]:
        """Returns 1 and logs a warning if the mean difference at current weights exceeds `limit` nats; else
        0.

        The same weights must give the same log-probs. A difference indicates a fault in engine or trainer (another
        dtype, temperature or template), and it distorts every importance ratio.
        """
        if not limit or METRIC not in metrics:
            return {}
        gap = metrics[METRIC]
        if gap > limit:
            logger.warning(
                "log-probs of trainer and engine differ by %.3f nats per token for the same "
                "weights (limit %.3f); check temperature, dtype and chat template, or weight "
                "tokens with --use-tis",
                gap,
                limit,
            )
        return {f"{METRIC}_alarm": float(gap > limit)}

    def _kind(self, sample: Sample) -> str:
        if len(sample.versions) > 1:
            return "_spanning"
        return "" if sample.versions <= {self.version} else "_stale"


@dataclass
class TeacherDistance:
    """Measures the KL divergence of the hinted teacher from the old policy, on the batch's own hinted
    samples.

    It covers the compared ids plus one entry for all others, so it is a lower bound of the KL over the whole
    vocabulary.
    """

    total: float = 0.0
    tokens: float = 0.0

    def add(self, targets: TopKTargets, counts: Tensor) -> None:
        """Adds T tokens; `counts` [T] (bool) marks the tokens to include."""
        counts = counts & targets.valid.any(-1)
        self.total += float(kl_over_few(targets)[counts].sum())
        self.tokens += float(counts.sum())

    def metrics(self) -> dict[str, float]:
        """Returns `teacher_kl` in nats per token, if there was a hint, and resets. Every rank must call this."""
        sums = sum_over_ranks({"total": self.total, "tokens": self.tokens})
        self.total = self.tokens = 0.0
        return {"teacher_kl": sums["total"] / sums["tokens"]} if sums["tokens"] else {}


def kl_over_few(targets: TopKTargets) -> Tensor:
    """Returns the KL [T] of the teacher from the old policy, over K ids plus one entry for the rest."""
    valid, teacher, old = targets.valid, targets.teacher_log_probs.float(), targets.old_log_probs.float()
    inside = torch.where(valid, teacher.exp() * (teacher - old), 0.0).sum(-1)
    rest, old_rest = (
        (1 - torch.where(valid, values.exp(), 0.0).sum(-1)).clamp(min=LEAST) for values in (teacher, old)
    )
    return inside + rest * (rest.log() - old_rest.log())
