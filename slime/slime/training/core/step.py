"""Computes gradients of one optimizer step over the micro-batches of a schedule, and log-probs without
gradients.

With --echo-coef, tokens that the policy did not write are also trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slime.losses import (
    Distribution,
    LossBatch,
    LossOutput,
    LossSpec,
    Reducer,
    Rows,
    Segments,
    TopKTargets,
    compute_loss,
    echo_loss,
    weighted_sum,
)
from slime.losses.sharded import ShardedDistribution
from slime.training.core.batch import TrainBatch, ages, stale_weights
from slime.training.core.following import Following
from slime.training.core.learner import Learner
from slime.training.core.model import TrainedModel, log_probs_of
from slime.training.core.packing import PackedBatch, pack, trained_values
from slime.training.core.shared_rows import SharedRows
from slime.training.core.user_hooks import custom_loss, custom_pack
from slime.training.schedule import MicroBatch
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.distillation import StalenessArguments
    from slime.flags.loss import LossArguments

OnLogProbs = Callable[[MicroBatch, PackedBatch, Tensor], None]
OnDistribution = Callable[[int, PackedBatch, Distribution], None]
LayOut = Callable[[Sequence[Sample], torch.device], PackedBatch]
Teach = Callable[[int, PackedBatch, Distribution], TopKTargets]


@dataclass(frozen=True)
class StepInputs:
    """Inputs of this rank's share of an optimizer step.

    Attributes:
        micro_batches: this rank's micro-batches, as positions in `data.samples`.
        denominator: number of samples in the whole step, or of tokens with --calculate-per-token-loss.
        teach: maps (micro-batch number, pack, distribution) to a teacher's log-probs of likely ids.
        following: the micro-batches whose samples are only distilled.
        before_backward: called before the backward pass of every micro-batch.
    """

    args: Arguments
    spec: LossSpec
    data: TrainBatch
    micro_batches: Sequence[MicroBatch]
    denominator: float
    device: torch.device
    teach: Teach | None = None
    following: Following = field(default_factory=Following)
    before_backward: Callable[[], object] = lambda: None

    def packs(self) -> list[PackedBatch]:
        """Returns each micro-batch as one flat sequence, in the layout that the loss needs."""
        merge = self.args.merge_prefixes
        plain: LayOut = partial(pack, merge=merge)
        lay_out: LayOut = custom_pack
        if self.spec.on_logits is None:
            lay_out = partial(pack, merge=merge, observed=self.args.echo_coef > 0)
        return [
            (plain if number in self.following.taught else lay_out)(
                [self.data.samples[i] for i in part], self.device
            )
            for number, part in enumerate(self.micro_batches)
        ]

    def loss_of(
        self, number: int, packed: PackedBatch, seen: Any
    ) -> tuple[LossOutput, PackedBatch, Tensor | None]:
        """Returns loss and metrics of a pack, its trained part, and log-probs of the targets [T].

        The log-probs are None for distillation-only samples. `seen` is the model's output for the pack: a
        distribution, or logits for a custom loss.
        """
        micro_batch = self.micro_batches[number]
        if number in self.following.taught:
            samples = [self.data.samples[i] for i in micro_batch]
            return (
                self.following.loss(number, samples, packed, seen, self._reducer(number, packed)),
                packed,
                None,
            )
        if self.spec.on_logits is not None:
            output, log_probs = custom_loss(
                self.spec.on_logits, self.args, micro_batch, packed, seen, self.data, self.denominator
            )
            return output, packed, log_probs
        trained, own, others = split_others(packed, seen)
        output, log_probs = self._of_components(number, trained, own)
        weights = [self.data.samples[i].loss_weight for i in micro_batch]
        return add_echo(self.args, output, others, self.denominator, weights), trained, log_probs

    def _of_components(
        self, number: int, packed: PackedBatch, dist: Distribution
    ) -> tuple[LossOutput, Tensor]:
        """Like `loss_of` for built-in losses; reuses the log-probs that the loss computes if possible."""
        args, micro_batch = self.args, self.micro_batches[number]
        batch = loss_batch(micro_batch, packed, self.data, self.denominator, args.reward_key)
        if self.teach is not None:
            _keep_normaliser(dist)
            batch = replace(batch, targets=self.teach(number, packed, dist))
        output = compute_loss(self.spec, dist, batch, self._reducer(number, packed))
        with torch.no_grad():
            return output, dist.log_probs(packed.targets)

    def _reducer(self, number: int, packed: PackedBatch) -> Reducer:
        weights = token_weights(self.micro_batches[number], self.data, self.args)
        return step_reducer(self.denominator, packed, self.args.calculate_per_token_loss, weights)


def forward_backward(
    learner: Learner[TrainedModel], inputs: StepInputs, on_log_probs: OnLogProbs
) -> dict[str, float]:
    """Accumulates the gradient of the step's loss over all ranks; returns the step's metrics."""
    seen_log_probs: list[tuple[MicroBatch, PackedBatch, Tensor]] = []
    metrics: list[dict[str, Tensor]] = []

    def loss_of(number: int, packed: PackedBatch, seen: Any) -> Tensor:
        output, trained, log_probs = inputs.loss_of(number, packed, seen)
        metrics.append({name: value.detach() for name, value in output.metrics.items()})
        if log_probs is not None:
            seen_log_probs.append((inputs.micro_batches[number], trained, log_probs.detach()))
        inputs.before_backward()
        return output.loss

    learner.accumulate(inputs.packs(), loss_of)
    for micro_batch, packed, log_probs in seen_log_probs:
        on_log_probs(micro_batch, packed, log_probs)
    return learner.add_up(summed(metrics))


def summed(metrics: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """Returns sums by name. Call it after the last backward pass, because reading a tensor waits for the GPU."""
    sums: dict[str, float] = {}
    for part in metrics:
        for name, value in part.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def _keep_normaliser(dist: Distribution) -> None:
    """Computes the normaliser of a sharded vocabulary with its gradient, before a teacher computes it
    without."""
    whole = dist.whole if isinstance(dist, Rows) else dist
    own = whole.own if isinstance(whole, SharedRows) else whole
    if isinstance(own, ShardedDistribution):
        own.logsumexp()


def step_reducer(
    denominator: float, packed: PackedBatch, per_token: bool, of_tokens: Sequence[float] | None = None
) -> Reducer:
    """Returns a function that averages over trained tokens, or over samples the means of their trained
    tokens.

    Args:
        of_tokens: [T], additional weights that do not change the denominators.
    """
    weights = packed.spread([1.0 if per_token else 1.0 / count for count in packed.counts])
    if of_tokens:
        weights = weights * torch.tensor(of_tokens, device=weights.device)
    return weighted_sum(weights, denominator)


def token_weights(micro_batch: MicroBatch, data: TrainBatch, args: StalenessArguments) -> list[float] | None:
    """Returns the trained tokens' weights, from token ages and sample weights; None if all are 1."""
    samples = [data.samples[i] for i in micro_batch]
    if args.max_staleness is None and all(sample.loss_weight == 1 for sample in samples):
        return None
    return [
        sample.loss_weight * weight
        for sample in samples
        for weight in stale_weights(sample, data.version, args)
    ]


def loss_batch(
    micro_batch: MicroBatch,
    packed: PackedBatch,
    data: TrainBatch,
    denominator: float = 1.0,
    reward_key: str | None = None,
) -> LossBatch:
    """Returns the inputs of the loss, aligned with the pack's targets. A filler has one token with weight 0."""
    samples, device = [data.samples[i] for i in micro_batch], packed.targets.device
    masks = [torch.tensor(sample.mask, dtype=torch.bool, device=device) for sample in samples]
    engine = {
        i: trained_values(sample, sample.rollout_log_probs)
        for i, sample in zip(micro_batch, samples, strict=True)
        if sample.rollout_log_probs is not None
    }
    rewards = None
    if data.advantages is not None:
        rewards = torch.tensor([_reward(sample, reward_key) for sample in samples] or [0.0], device=device)
    segments = Segments(packed.lengths, tuple(masks))
    if packed.is_filler:
        segments = Segments((2,), (torch.ones(1, dtype=torch.bool, device=device),))
        denominator = math.inf
    taught = _teacher(micro_batch, packed, data)
    moved = not data.ratio_one.issuperset(micro_batch)
    return LossBatch(
        ids=packed.targets,
        advantages=values_of(micro_batch, packed, data.advantages),
        old_log_probs=values_of(micro_batch, packed, data.old_log_probs) if moved else None,
        ref_log_probs=values_of(micro_batch, packed, data.ref_log_probs),
        rollout_log_probs=values_of(micro_batch, packed, engine),
        rewards=rewards,
        teacher_log_probs=None if taught is None else taught[0],
        taught=None if taught is None else taught[1],
        older=_older(micro_batch, packed, data),
        behaviour_log_probs=_companion_log_probs(micro_batch, packed, data),
        segments=segments,
        denominator=denominator,
    )


def _reward(sample: Sample, key: str | None) -> float:
    """Returns a sample's reward for custom losses; NaN if it has none, as distillation allows."""
    return math.nan if sample.reward is None else sample.get_reward_value(key)


def _teacher(micro_batch: MicroBatch, packed: PackedBatch, data: TrainBatch) -> tuple[Tensor, Tensor] | None:
    """Returns the teacher's log-probs of the sampled tokens, and a mask of tokens with a teacher; None if all
    lack one."""
    per_sample = [data.teacher_of(i) for i in micro_batch]
    if all(part is None for part in per_sample):
        return None
    parts = [part or [0.0] * count for part, count in zip(per_sample, packed.counts, strict=True)]
    values = torch.tensor([value for part in parts for value in part], device=packed.targets.device)
    return values, packed.spread([float(part is not None) for part in per_sample]).bool()


def _older(micro_batch: MicroBatch, packed: PackedBatch, data: TrainBatch) -> Tensor:
    """Returns the mask [T] of tokens sampled by weights older than the current ones."""
    written_before = [age > 0 for i in micro_batch for age in ages(data.samples[i], data.version)]
    return torch.tensor(written_before if micro_batch else [False], device=packed.targets.device)


def _companion_log_probs(micro_batch: MicroBatch, packed: PackedBatch, data: TrainBatch) -> Tensor | None:
    """Returns the engine's log-probs of companions, and NaN for other samples; None if no companion has them."""
    samples = {i: data.samples[i] for i in micro_batch}
    companions = {i for i, one in samples.items() if one.companion and one.rollout_log_probs is not None}
    if not companions:
        return None
    by_position = {
        i: trained_values(one, one.rollout_log_probs or [])
        if i in companions
        else [math.nan] * one.effective_response_length
        for i, one in samples.items()
    }
    return values_of(micro_batch, packed, by_position)


def values_of(
    micro_batch: MicroBatch, packed: PackedBatch, by_position: Mapping[int, object] | None
) -> Tensor | None:
    """Returns the values of the micro-batch's tokens, [T]; None if a sample has no values."""
    if by_position is None or not all(i in by_position for i in micro_batch):
        return None
    device = packed.targets.device
    if packed.is_filler:
        return torch.zeros(1, device=device)
    values = [torch.as_tensor(by_position[i], dtype=torch.float32) for i in micro_batch]
    return torch.cat(values).to(device)


@torch.no_grad()
def trained_log_probs(
    model: TrainedModel,
    micro_batches: Sequence[MicroBatch],
    samples: Sequence[Sample],
    device: torch.device,
    on_distribution: OnDistribution | None = None,
    **how: Any,
) -> dict[int, list[float]]:
    """Returns log-probs of the samples in `micro_batches`, by position, computed as in training but without
    dropout.

    Only the dropout of adapters is disabled.

    Args:
        on_distribution: called with the number and the distribution of every micro-batch.
    """
    by_position: dict[int, list[float]] = {}
    model.eval()
    packs = [pack([samples[i] for i in micro_batch], device, **how) for micro_batch in micro_batches]
    if on_distribution is None:
        per_pack = log_probs_of(model, packs)
    else:
        per_pack = []
        for number, packed in enumerate(packs):
            dist = model.distribution(packed)
            per_pack.append(dist.log_probs(packed.targets))
            on_distribution(number, packed, dist)
    model.train()
    for micro_batch, packed, values in zip(micro_batches, packs, per_pack, strict=True):
        by_position |= by_sample(micro_batch, packed, values)
    return by_position


def by_sample(micro_batch: MicroBatch, packed: PackedBatch, values: Tensor) -> dict[int, list[float]]:
    """Splits a pack's values [T] into one list per sample."""
    if packed.is_filler:
        return {}
    parts = torch.split(values, list(packed.counts))
    return {i: part.tolist() for i, part in zip(micro_batch, parts, strict=True)}


@dataclass(frozen=True)
class Others:
    """Tokens that the policy did not write: their distribution, ids [E], and number per sample."""

    dist: Distribution
    ids: Tensor
    counts: tuple[int, ...]


def split_others(packed: PackedBatch, seen: Distribution) -> tuple[PackedBatch, Distribution, Others | None]:
    """Splits pack and distribution into trained tokens and others (None if there are no others)."""
    if not sum(packed.observed):
        return packed, seen, None
    own, ids = packed.without_observed()
    total, size = len(packed.targets), len(own.targets)
    others = Others(Rows(seen, total, size, total - size), ids, packed.observed)
    return own, Rows(seen, total, 0, size), others


def add_echo(
    args: LossArguments,
    output: LossOutput,
    others: Others | None,
    denominator: float,
    of_samples: Sequence[float],
) -> LossOutput:
    """Returns the loss plus `echo_coef` times the cross-entropy of tokens that the policy did not write.

    With --calculate-per-token-loss, the sum over these tokens is divided by the step's trained tokens.
    Otherwise, it is the mean over samples of each sample's mean over these tokens.

    Args:
        of_samples: weight of each sample's tokens.
    """
    if not args.echo_coef:
        return output
    if others is None:
        return LossOutput(
            output.loss, {**output.metrics, "echo_loss": torch.zeros_like(output.loss.detach())}
        )
    counts = torch.tensor(others.counts, device=others.ids.device)
    weights = torch.ones(len(counts)) if args.calculate_per_token_loss else 1.0 / counts.clamp(min=1)
    weights = weights.to(counts.device) * torch.tensor(of_samples, device=counts.device)
    reducer = weighted_sum(weights.repeat_interleave(counts), denominator)
    echo = echo_loss(others.dist, others.ids, reducer)
    loss = output.loss + args.echo_coef * echo.loss
    return LossOutput(loss, {**output.metrics, **echo.metrics, "loss": loss.detach()})
