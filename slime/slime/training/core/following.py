"""Samples that follow their teacher alone (`Sample.divergence`): their loss, and their metrics, apart from those of
other samples.

Whatever the loss of the method is, these are trained by the forward KL from their teacher over its likely ids and one
bin for the rest: no reward, clip or KL term takes part. A teacher that reads the sample's own prompt holds the policy to
what it does there; one that reads a hint moves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from slime.losses import Candidates, Distribution, LossOutput, Reducer, forward_kl, weighted_sum
from slime.training.core.batch import TrainBatch
from slime.training.core.packing import PackedBatch
from slime.training.schedule import Step
from slime.types import Sample

LIKELY_IDS = 64
"""Ids of the teacher that are compared at a token, if --distill-topk is not given."""
LOSS = "forward_loss"
"""The part of the loss that these samples contribute."""
BY_CASE = {"dream": "dream_kl", "anchor_bank": "anchor_kl"}
"""Metric of the rows whose metadata have this `case`: their mean forward KL a token, in nats."""
OTHER_CASES = "forward_kl"
NAMES = {LOSS, OTHER_CASES, *BY_CASE.values()}


@dataclass(frozen=True)
class Following:
    """The micro-batches of a step whose samples follow their teacher.

    Attributes:
        taught: the teacher's likely ids, as one hint, by number of the micro-batch; of empty ones too.
        tokens: trained tokens of the step over all ranks, by the metric that they count in.
    """

    taught: Mapping[int, Candidates] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, number: int, step: Step, data: TrainBatch) -> Following:
        """Returns the token counts of such samples in step `number` of a rollout."""
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
        """Loss of micro-batch `number`, which holds these samples, and metrics of the whole step's names."""
        taught = self.taught[number]
        assert taught.own_ids is not None
        ids = taught.own_ids[0]
        divergence = forward_kl(dist, ids, taught.log_probs[0], taught.present[0, :, None].expand_as(ids))
        loss = reducer(divergence)
        metrics = {LOSS: loss.detach()}
        for name, count in self.tokens.items():
            own = packed.spread([float(metric_of(sample) == name) for sample in samples])
            metrics[name] = weighted_sum(own, count)(divergence.detach())
        return LossOutput(loss, metrics)


def kind_of(sample: Sample) -> Hashable:
    """Samples of different kinds share no micro-batch: a teacher with guidance reads those of an own prompt once."""
    return sample.divergence and (sample.divergence, sample.teacher_tokens_candidates == [sample.tokens])


def taught_length(samples: Sequence[Sample]) -> dict[str, float]:
    """`taught_length`: mean tokens of the answers that a hinted teacher taught, such as dreams; empty without any."""
    lengths = [
        sample.effective_response_length
        for sample in samples
        if sample.divergence and sample.teacher_tokens_candidates != [sample.tokens]
    ]
    return {"taught_length": sum(lengths) / len(lengths)} if lengths else {}


def metric_of(sample: Sample) -> str:
    """Returns the metric in which a sample's divergence counts."""
    return BY_CASE.get(str(sample.metadata.get("case")), OTHER_CASES)


def reported(
    metrics: Mapping[str, float],
    of_update: Mapping[str, float],
    step: Step,
    samples: Sequence[Sample],
    per_token: bool,
    prefix: str = "",
) -> dict[str, float]:
    """Metrics of a step as they are reported: those of samples that follow their teacher under their own names, those of
    the others as if these were the whole step.

    Args:
        metrics: sums over the whole step, divided by its denominator.
        of_update: numbers of the optimizer's update, `forward_NAME` if all samples of the step follow their teacher.
        per_token: the denominator counts tokens, else samples.
        prefix: of all names but those of samples that follow their teacher.
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
