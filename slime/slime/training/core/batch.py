"""The data of one rollout for its training steps, and the computation of token advantages from rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slime.errors import ConfigError, DataError
from slime.hooks import load_hook
from slime.losses import (
    AdvantageSettings,
    Candidates,
    LossSpec,
    SampleTerms,
    TopKTargets,
    approx_kl,
    distilled,
    estimator,
    group_advantages,
    normalized_spans,
    ppo_advantages,
    settings_of,
    steps_of,
    whiten,
)
from slime.training.core.packing import trained_values
from slime.types import Sample, trajectories_of

if TYPE_CHECKING:
    from slime.flags.distillation import StalenessArguments
    from slime.flags.loss import LossArguments
    from slime.flags.sides import ObjectiveSide


@dataclass
class TrainBatch:
    """Values of trained tokens, keyed by sample position; a rank has only the values of its own samples.

    Attributes:
        ref_log_probs: of the reference model; None without one.
        old_log_probs: of the weights before the update. Samples in `ratio_one` have them only if the loss
            needs them for more than the ratio.
        ratio_one: samples of the first step, and companions: the policy has not changed since their old
            log-probs, so the importance ratio is 1.
        values, returns: of the critic; None without one.
        teacher_log_probs: from a teacher in the trainer, for samples with a hint; None if samples contain
            them.
        targets: distillation targets by step and micro-batch number, for steps that start from changed
            weights.
        followed: the teacher's likely ids by step and micro-batch number, for samples without rewards.
        version: weight version before the update.
    """

    samples: Sequence[Sample]
    advantages: dict[int, Tensor] | None = None
    ref_log_probs: dict[int, list[float]] | None = None
    old_log_probs: dict[int, list[float]] = field(default_factory=dict)
    ratio_one: frozenset[int] = frozenset()
    values: dict[int, list[float]] | None = None
    returns: dict[int, Tensor] | None = None
    teacher_log_probs: dict[int, list[float]] | None = None
    targets: dict[tuple[int, int], TopKTargets] = field(default_factory=dict)
    followed: dict[tuple[int, int], Candidates] = field(default_factory=dict)
    version: int = 0

    def teacher_of(self, i: int) -> list[float] | None:
        """Returns the teacher's log-probs of a sample's trained tokens; None if it has no teacher."""
        if self.teacher_log_probs is not None:
            return self.teacher_log_probs.get(i)
        return _trained(self.samples[i], self.samples[i].teacher_log_probs)


def check_inputs(args: ObjectiveSide, spec: LossSpec, samples: Sequence[Sample]) -> None:
    """Checks the samples before training. Every rank checks all samples, so either all ranks raise or none.

    Raises:
        DataError: a trained sample lacks values that the loss or the estimator needs.
    """
    distils = spec.needs_advantages and args.advantage_estimator == "on_policy_distillation"
    in_trainer = args.teacher_source == "trainer"
    check_loss_fields(args, spec, samples)
    needed = {
        "rollout_log_probs": (_engine_flag(args), spec.needs_rollout_log_probs),
        "teacher_log_probs": ("--advantage-estimator on_policy_distillation", distils and not in_trainer),
    }
    for name, (flag, is_needed) in needed.items():
        for sample in samples if is_needed else ():
            if getattr(sample, name) is None and sample.divergence is None and any(sample.mask):
                raise DataError(f"sample {sample.index!r} has no {name}, which {flag} requires")
    if in_trainer and (distils or (spec.teacher and spec.without_hint == "refuse")):
        check_hints(samples)
    elif spec.teacher == "topk" and not in_trainer:
        check_topk(args.distill_topk, samples, every=spec.without_hint == "refuse")


def check_loss_fields(args: ObjectiveSide, spec: LossSpec, samples: Sequence[Sample]) -> None:
    """Raises DataError if the trainer cannot apply a sample's `divergence` or `loss_weight`."""
    taught = args.teacher_source == "trainer" and spec.teacher is not None and spec.on_logits is None
    for sample in samples:
        if sample.divergence is not None and not taught:
            raise DataError(
                f"sample {sample.index!r} has divergence {sample.divergence!r}, which needs "
                "--teacher-source trainer and a loss with distillation"
            )
        if sample.loss_weight != 1 and args.custom_pg_loss_reducer_function_path:
            raise DataError(
                f"sample {sample.index!r} has loss_weight {sample.loss_weight}, which "
                "--custom-pg-loss-reducer-function-path does not support"
            )


def _engine_flag(args: LossArguments) -> str:
    if args.use_rollout_logprobs:
        return "--use-rollout-logprobs"
    return "--use-tis" if args.use_tis else "--get-mismatch-metrics"


def check_hints(samples: Sequence[Sample]) -> None:
    """Raises DataError if the loss uses no rewards and a sample has no teacher."""
    for sample in samples:
        if not sample.teacher_tokens_candidates and sample.effective_response_length:
            raise DataError(
                f"sample {sample.index!r} has no hint and therefore no teacher, but this loss "
                "trains only by distillation"
            )


def check_topk(k: int, samples: Sequence[Sample], every: bool) -> None:
    """Raises DataError if a sample's teacher has fewer than `k` ids per token, or if `every` and a sample has
    no teacher."""
    for sample in samples:
        ids = sample.teacher_topk_indices
        if ids is None and every and sample.effective_response_length:
            raise DataError(f"sample {sample.index!r} has no teacher_topk_indices, which this loss requires")
        if ids and len(ids[0]) < k:
            raise DataError(
                f"sample {sample.index!r} has {len(ids[0])} teacher ids per token, but --distill-topk is {k}"
            )


def engine_log_probs(samples: Sequence[Sample], positions: Sequence[int]) -> dict[int, list[float]]:
    """Returns the log-probs that the engine reported for the trained tokens of the samples at `positions`."""
    return {i: trained_values(samples[i], samples[i].rollout_log_probs or []) for i in positions}


def rewards_of(args: ObjectiveSide, samples: Sequence[Sample]) -> list[float]:
    """Returns each sample's reward as its estimator needs it: raw, or relative to its group.

    Samples that are only distilled belong to no group and get 0.

    Raises:
        ConfigError: rewards are dictionaries without the key --reward-key.
        DataError: a reward is not one finite number, or samples of one trajectory have different rewards.
    """
    if args.advantage_estimator in ("step_wise", "on_policy_distillation"):
        return [0.0] * len(samples)
    judged = [i for i, sample in enumerate(samples) if sample.divergence is None]
    own = [samples[i] for i in judged]
    check_reward_key(own, args.reward_key)
    compared = group_advantages(
        [sample.get_reward_value(args.reward_key) for sample in own],
        [sample.group_index for sample in own],
        normalize=compares_groups(args),
        by_std=not args.disable_grpo_std_normalization
        and args.advantage_estimator != "reinforce_plus_plus_baseline",
        trajectories=trajectories_of(own),
    )
    by_sample = dict(zip(judged, compared, strict=True))
    return [by_sample.get(i, 0.0) for i in range(len(samples))]


def check_reward_key(samples: Sequence[Sample], key: str | None) -> None:
    """Raises ConfigError if all rewards are dictionaries and none has `key`, since later batches would fail
    too."""
    names = [set(sample.reward) for sample in samples if isinstance(sample.reward, Mapping)]
    if names and len(names) == len(samples) and not any(key in some for some in names):
        listed, state = ", ".join(sorted(set().union(*names))), "is not set" if key is None else f"is {key}"
        raise ConfigError(
            f"rewards are dictionaries with the keys {listed}: choose one with --reward-key, which {state}"
        )


def compares_groups(args: ObjectiveSide) -> bool:
    """Returns whether the estimator compares rewards within a group."""
    done = args.custom_reward_post_process_path or args.custom_convert_samples_to_train_data_path
    by_group = args.advantage_estimator not in ("reinforce_plus_plus", "ppo")
    return by_group and not done and not args.disable_rewards_normalization


def sample_terms(args: ObjectiveSide, data: TrainBatch, positions: Sequence[int]) -> dict[int, SampleTerms]:
    """Returns the advantage estimator's inputs for the samples at `positions`.

    Raises:
        DataError: any sample of the rollout has an unusable reward or step.
    """
    samples, rewards = data.samples, rewards_of(args, data.samples)
    spans: Mapping[int, Any] = {}
    if args.advantage_estimator == "step_wise":
        judged = {i: sample for i, sample in enumerate(samples) if sample.divergence is None}
        steps = steps_of(list(judged.values()), args.reward_key)
        groups = [sample.group_index for sample in judged.values()]
        terms = normalized_spans(steps, groups, normalize=not args.disable_rewards_normalization)
        spans = dict(zip(judged, terms, strict=True))
    return {
        i: SampleTerms(
            reward=rewards[i],
            mask=torch.tensor(samples[i].mask, dtype=torch.bool),
            old_log_probs=_tensor(data.old_log_probs.get(i)),
            ref_log_probs=_tensor((data.ref_log_probs or {}).get(i)),
            teacher_log_probs=_tensor(data.teacher_of(i)),
            spans=spans.get(i, ()),
        )
        for i in positions
    }


def token_advantages(
    args: ObjectiveSide, data: TrainBatch, positions: Sequence[int], add_up: Callable[[Tensor], Tensor]
) -> dict[int, Tensor]:
    """Returns the advantages of the trained tokens of the samples at `positions`, by position.

    Order of computation: estimator (or the user's function), distillation, whitening.

    Args:
        add_up: sums a vector over the ranks; all ranks must call it.
    """
    terms, settings = sample_terms(args, data, positions), settings_of(AdvantageSettings, args)
    if args.custom_advantage_function_path:
        advantages = _custom(args, data, terms)
    elif data.values is not None:
        values = [torch.tensor(data.values[i]) for i in terms]
        advantages, returns = ppo_advantages(settings, list(terms.values()), values)
        data.returns = dict(zip(terms, returns, strict=True))
    else:
        estimate = estimator(settings)
        advantages = [estimate(item) for item in terms.values()]
    if args.use_opd:
        pairs = zip(advantages, terms.values(), strict=True)
        advantages = [distilled(values, item, args.opd_kl_coef) for values, item in pairs]
    if args.normalize_advantages:
        advantages = whiten(advantages, add_up)
    return dict(zip(terms, advantages, strict=True))


def _custom(args: ObjectiveSide, data: TrainBatch, terms: dict[int, SampleTerms]) -> list[Tensor]:
    """Returns advantages from the user's f(args, rollout_data): one list entry per sample, tensors [R] per
    token."""
    samples = [data.samples[i] for i in terms]
    rollout_data: dict[str, Any] = {
        "tokens": [torch.tensor(sample.tokens) for sample in samples],
        "total_lengths": [len(sample.tokens) for sample in samples],
        "response_lengths": [sample.response_length for sample in samples],
        "loss_masks": [item.mask.float() for item in terms.values()],
        "rewards": [item.reward for item in terms.values()],
        "raw_reward": [sample.reward for sample in samples],
        "log_probs": [widened(item.mask, item.old_log_probs) for item in terms.values()],
        "ref_log_probs": [widened(item.mask, item.ref_log_probs) for item in terms.values()],
        "teacher_log_probs": [widened(item.mask, item.teacher_log_probs) for item in terms.values()],
        "rollout_log_probs": [_tensor(sample.rollout_log_probs) for sample in samples],
        "kl": [widened(item.mask, _kl(args, item)) for item in terms.values()],
        "group_indices": [sample.group_index for sample in samples],
        "sample_indices": [sample.index for sample in samples],
        "metadata": [sample.metadata for sample in samples],
    }
    load_hook(args, "custom_advantage_function_path")(args, rollout_data)
    advantages = [
        torch.as_tensor(values, dtype=torch.float32) for values in rollout_data.get("advantages", ())
    ]
    if [len(values) for values in advantages] != rollout_data["response_lengths"]:
        raise DataError(
            f"{args.custom_advantage_function_path} must set rollout_data['advantages'] to one "
            "tensor of response_length numbers per sample"
        )
    return [values[item.mask] for values, item in zip(advantages, terms.values(), strict=True)]


def _kl(args: LossArguments, item: SampleTerms) -> Tensor | None:
    if item.old_log_probs is None or item.ref_log_probs is None:
        return None
    return approx_kl(item.old_log_probs, item.ref_log_probs, args.kl_loss_type)


def ages(sample: Sample, version: int) -> list[int]:
    """Returns the age of each trained token: `version` minus the version of the weights that sampled it.

    A turn may span weight updates, so each version span has its own age. Tokens of an unknown version have age 0.
    """
    wide = [0] * sample.response_length
    for written, start, end in sample.version_spans:
        wide[start:end] = [max(version - written, 0)] * (end - start)
    return [age for age, kept in zip(wide, sample.mask, strict=True) if kept]


def stale_weights(sample: Sample, version: int, args: StalenessArguments) -> list[float]:
    """Returns each trained token's weight in the loss: --stale-weight if its age exceeds --max-staleness, else 1."""
    limit = args.max_staleness
    if limit is None:
        return [1.0] * sample.effective_response_length
    return [args.stale_weight if age > limit else 1.0 for age in ages(sample, version)]


def widened(mask: Tensor, values: Tensor | None) -> Tensor | None:
    """Expands values of trained tokens [T] to values of response tokens [R], with 0 at untrained tokens."""
    return None if values is None else torch.zeros(len(mask)).masked_scatter(mask, values)


def _trained(sample: Sample, values: Sequence[float] | None) -> list[float] | None:
    return None if values is None else trained_values(sample, values)


def _tensor(values: Sequence[float] | None) -> Tensor | None:
    return None if values is None else torch.tensor(values, dtype=torch.float32)
