"""Distillation-only samples (`Sample.divergence`): their loss, and their separate metrics.

These samples are trained by the forward KL from the teacher over its most likely ids, plus one entry for all
other ids. With every loss, rewards, clipping and KL terms are ignored. A teacher that reads the sample's own
prompt preserves the policy's behaviour for it; one that reads a hint changes it.

`Sample.end_weight` adds the likelihood (or unlikelihood, Welleck et al. 2019, arXiv 1908.04319) of an answer's last
token: answers selected for their length show where to end, and the teacher's distribution there does not
(lab/findings/dreaming.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from slime.losses import Candidates, Distribution, LossOutput, Reducer, forward_kl, weighted_sum
from slime.training.core.batch import TrainBatch
from slime.training.core.packing import PackedBatch
from slime.training.schedule import Step
from slime.types import Sample

LIKELY_IDS = 256
"""Smallest number of the teacher's ids that are compared at each token; --distill-topk may request more.

The loss ignores how the other ids share their probability. With 20 ids that is 0.15 at a first token, and a
fifth of SmolLM2's answers began with a quotation mark (lab/findings/dreaming.md).
"""
LOSS = "forward_loss"
"""Metric name of these samples' part of the loss."""
BY_CASE = {"dream": "dream_kl", "anchor_bank": "anchor_kl"}
"""Metric name for each `case` in the samples' metadata: mean forward KL per token, in nats."""
OTHER_CASES = "forward_kl"
NAMES = {LOSS, OTHER_CASES, *BY_CASE.values()}


@dataclass(frozen=True)
class Following:
    """Micro-batches of one step whose samples are only distilled.

    Attributes:
        taught: the teacher's likely ids, as one hint, by micro-batch number; includes empty micro-batches.
        tokens: trained tokens of the step over all ranks, by metric name.
    """

    taught: Mapping[int, Candidates] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, number: int, step: Step, data: TrainBatch) -> Following:
        """Returns the distillation-only micro-batches of step `number`, with their token counts."""
        tokens: Counter[str] = Counter()
        for sample in (data.samples[i] for i in step.samples):
            if sample.divergence is not None:
                tokens[metric_of(sample)] += sample.effective_response_length
        return cls({part: data.followed[number, part] for part in step.others()}, tokens)

    def loss(
        self,
        number: int,
        samples: Sequence[Sample],
        packed: PackedBatch,
        dist: Distribution,
        reducer: Reducer,
    ) -> LossOutput:
        """Returns the loss of micro-batch `number`, with all metric names of the step."""
        taught = self.taught[number]
        assert taught.own_ids is not None
        ids = taught.own_ids[0]
        divergence = forward_kl(dist, ids, taught.log_probs[0], taught.present[0, :, None].expand_as(ids))
        ends = packed.at_ends([sample.end_weight for sample in samples])
        loss = reducer(divergence + _end_loss(dist, packed.targets, ends) if ends.any() else divergence)
        metrics = {LOSS: loss.detach()}
        for name, count in self.tokens.items():
            own = packed.spread([float(metric_of(sample) == name) for sample in samples])
            metrics[name] = weighted_sum(own, count)(divergence.detach())
        return LossOutput(loss, metrics)


def _end_loss(dist: Distribution, targets: Tensor, weights: Tensor) -> Tensor:
    """Returns the loss of last tokens [T] from the `end_weight` [T] of their samples; 0 elsewhere."""
    log_probs = dist.log_probs(targets)
    others = torch.log1p(-log_probs.exp().clamp(max=1 - 1e-6))
    return -torch.where(weights > 0, weights * log_probs, weights.abs() * others)


def kind_of(sample: Sample) -> Hashable:
    """Returns the kind of a sample; a micro-batch contains samples of one kind.

    With guidance, samples whose teacher reads their own prompt need only one forward pass of the teacher.
    """
    return sample.divergence and (sample.divergence, sample.teacher_tokens_candidates == [sample.tokens])


def taught_length(samples: Sequence[Sample]) -> dict[str, float]:
    """Returns `taught_length`, the mean answer length in tokens under a hinted teacher; empty without such
    samples."""
    lengths = [
        sample.effective_response_length
        for sample in samples
        if sample.divergence and sample.teacher_tokens_candidates != [sample.tokens]
    ]
    return {"taught_length": sum(lengths) / len(lengths)} if lengths else {}


def metric_of(sample: Sample) -> str:
    """Returns the metric name for a sample's divergence."""
    return BY_CASE.get(str(sample.metadata.get("case")), OTHER_CASES)


def reported(
    metrics: Mapping[str, float],
    of_update: Mapping[str, float],
    step: Step,
    samples: Sequence[Sample],
    per_token: bool,
    prefix: str = "",
) -> dict[str, float]:
    """Returns a step's metrics for reporting, separately for distillation-only samples and for the others.

    Metrics of the others are scaled as if they were the whole step.

    Args:
        metrics: sums over the whole step, divided by its denominator.
        of_update: metrics of the optimizer step, renamed to `forward_NAME` if all samples are only distilled.
        per_token: the denominator counts tokens, not samples.
        prefix: prefix of the other samples' names.
    """
    followed = {name: value for name, value in metrics.items() if name in NAMES}
    rest = {name: value for name, value in metrics.items() if name not in NAMES}
    if not rest:
        return followed | {f"forward_{name}": value for name, value in of_update.items()}
    plain = [samples[i] for i in step.samples if samples[i].divergence is None]
    count = sum(sample.effective_response_length for sample in plain) if per_token else len(plain)
    scale = step.denominator(per_token) / count
    rest = {name: value * scale for name, value in rest.items()} | dict(of_update)
    return followed | {f"{prefix}{name}": value for name, value in rest.items()}
