"""Converts rewards to advantages of trained tokens: compared within groups, then spread over tokens by an
estimator.

A group consists of the samples of one prompt, identified by the group index, not by the position in the
batch. Uneven and filtered groups are thus normalised correctly. A group of one has nothing to compare with,
so its normalised advantage is zero. Single turns (conversations) are trained without normalisation if the
advantage is the reward.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slime.errors import DataError, unknown_name
from slime.losses.formula import AdvantageSettings, KLType
from slime.losses.kl import approx_kl
from slime.losses.step_wise import STD_EPSILON, Span

WHITENING_EPSILON = 1e-8


def group_advantages(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    normalize: bool = True,
    by_std: bool = True,
    trajectories: Sequence[Hashable] | None = None,
) -> list[float]:
    """Returns one advantage per sample: reward minus its group's mean, over its deviation (GRPO, Shao et al.
    2024).

    Args:
        groups: group of each sample; None: a separate group.
        normalize: if False, return the raw rewards.
        by_std: also divide by (sample standard deviation + 1e-6).
        trajectories: trajectory of each sample. Mean and deviation are those of the group's trajectories, and
            all samples of a trajectory get the same. None: every sample is one.

    Raises:
        ValueError: lengths differ.
        DataError: samples of one trajectory have different rewards, but only a whole trajectory can be
            compared.
    """
    if len(rewards) != len(groups):
        raise ValueError(f"got {len(rewards)} rewards but {len(groups)} group indices")
    if not normalize:
        return [float(reward) for reward in rewards]
    advantages = [0.0] * len(rewards)
    for positions in _members(groups):
        values = _of_trajectories(rewards, positions, trajectories)
        if max(values) == min(values):
            continue
        mean = statistics.fmean(values)
        scale = statistics.stdev(values) + STD_EPSILON if by_std else 1.0
        for position in positions:
            advantages[position] = (rewards[position] - mean) / scale
    return advantages


def group_counts(
    rewards: Sequence[float], groups: Sequence[Hashable], trajectories: Sequence[Hashable] | None = None
) -> dict[str, float]:
    """Returns the number of groups, of groups with a single trajectory, and of groups with equal rewards.

    The latter two have no training signal under normalisation. Raises DataError like `group_advantages`.
    """
    values = [_of_trajectories(rewards, positions, trajectories) for positions in _members(groups)]
    return {
        "groups": float(len(values)),
        "groups_of_one": float(sum(len(group) == 1 for group in values)),
        "groups_all_equal": float(sum(len(group) > 1 and max(group) == min(group) for group in values)),
    }


def _of_trajectories(
    rewards: Sequence[float], positions: Sequence[int], trajectories: Sequence[Hashable] | None
) -> list[float]:
    """Returns the reward of each trajectory among the samples at `positions`, in their order."""
    if trajectories is None:
        return [rewards[position] for position in positions]
    by_trajectory: dict[Hashable, float] = {}
    for position in positions:
        name = trajectories[position]
        if by_trajectory.setdefault(name, rewards[position]) != rewards[position]:
            raise DataError(
                f"the samples of trajectory {name!r} have rewards {by_trajectory[name]!r} and {rewards[position]!r}; "
                "give each the reward of the whole trajectory, or rewards of steps with --advantage-estimator step_wise"
            )
    return list(by_trajectory.values())


def _members(groups: Sequence[Hashable]) -> list[list[int]]:
    """Returns the positions of the samples of each group; None is a separate group."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for position, group in enumerate(groups):
        members[("alone", position) if group is None else ("group", group)].append(position)
    return list(members.values())


@dataclass(frozen=True)
class SampleTerms:
    """One sample: R response tokens, T of them trained. Fields that an estimator does not use may be None.

    Attributes:
        reward: reward after normalisation in its group.
        mask: [R] of bool.
        old_log_probs, ref_log_probs, teacher_log_probs: [T].
        spans: steps with their normalised rewards (`step_wise`).
    """

    reward: float
    mask: Tensor
    old_log_probs: Tensor | None = None
    ref_log_probs: Tensor | None = None
    teacher_log_probs: Tensor | None = None
    spans: tuple[Span, ...] = ()


Estimator = Callable[[SampleTerms], Tensor]
CONSTANT = ("grpo", "gspo", "cispo")
"""One advantage for all tokens of a sample."""
OF_TOKENS = ("step_wise", "on_policy_distillation", "reinforce_plus_plus", "reinforce_plus_plus_baseline")


def estimator(settings: AdvantageSettings) -> Estimator:
    """Returns the selected estimator: a function from a sample to its advantages [T].

    Raises:
        ConfigError: the estimator is unknown; `ppo` needs a critic and is computed in `values.py`.
    """
    name, kl_coef, kind = settings.advantage_estimator, settings.kl_coef, settings.kl_loss_type
    if name in CONSTANT:
        return constant
    if name == "step_wise":
        return step_wise
    if name == "on_policy_distillation":
        return lambda terms: -distillation_gap(terms)
    if name == "reinforce_plus_plus":
        return lambda terms: reinforce_plus_plus(terms, kl_coef, kind, settings.gamma)
    if name == "reinforce_plus_plus_baseline":
        return lambda terms: baseline(terms, kl_coef, kind)
    raise unknown_name("--advantage-estimator", name, (*CONSTANT, *OF_TOKENS))


def constant(terms: SampleTerms) -> Tensor:
    """Returns the sample's reward for every token (GRPO, GSPO, CISPO)."""
    return torch.full((int(terms.mask.sum()),), terms.reward)


def step_wise(terms: SampleTerms) -> Tensor:
    """Returns the reward of the token's step; 0 between steps."""
    wide = torch.zeros(len(terms.mask))
    for span in terms.spans:
        wide[span.start : span.end] = span.reward
    return wide[terms.mask]


def baseline(terms: SampleTerms, kl_coef: float, kind: KLType) -> Tensor:
    """Returns A - kl_coef * KL of each token: REINFORCE++ with a group baseline (Hu 2025)."""
    return terms.reward - kl_coef * reward_divergence(terms, kl_coef, kind)


def reinforce_plus_plus(terms: SampleTerms, kl_coef: float, kind: KLType, gamma: float) -> Tensor:
    """Returns G_t = r_t + gamma G_{t+1} over the response tokens: REINFORCE++ (Hu 2025).

    A token's reward is -kl_coef * KL; the sample's reward is added at its last trained token. Untrained tokens have
    no reward, but count as time steps.
    """
    rewards = torch.zeros(len(terms.mask), dtype=torch.float64)
    rewards[terms.mask] = -kl_coef * reward_divergence(terms, kl_coef, kind).double()
    rewards[int(terms.mask.nonzero()[-1])] += terms.reward
    running = 0.0
    returns = rewards.tolist()
    for t in reversed(range(len(returns))):
        running = returns[t] = returns[t] + gamma * running
    return torch.tensor(returns)[terms.mask]


def reward_divergence(terms: SampleTerms, kl_coef: float, kind: KLType) -> Tensor:
    """Returns the KL estimate of each trained token [T] for --kl-coef; zeros if its weight is 0."""
    if kl_coef == 0:
        return torch.zeros(int(terms.mask.sum()))
    if terms.old_log_probs is None or terms.ref_log_probs is None:
        raise ValueError("KL as part of the reward needs log-probs of the policy and of a reference model")
    return approx_kl(terms.old_log_probs, terms.ref_log_probs, kind)


def distillation_gap(terms: SampleTerms) -> Tensor:
    """Returns the policy's minus the teacher's log-prob of the sampled tokens [T]: an estimate of the reverse KL."""
    if terms.old_log_probs is None or terms.teacher_log_probs is None:
        raise ValueError("on-policy distillation needs log-probs of the policy and of a teacher")
    return terms.old_log_probs - terms.teacher_log_probs


def distilled(advantages: Tensor, terms: SampleTerms, coef: float) -> Tensor:
    """Returns A - coef * (old - teacher log-prob): on-policy distillation as a component.

    A sample without a teacher keeps its advantages.
    """
    if terms.teacher_log_probs is None:
        return advantages
    return advantages - coef * distillation_gap(terms)


def whiten(
    advantages: Sequence[Tensor], add_up: Callable[[Tensor], Tensor] = lambda sums: sums
) -> list[Tensor]:
    """Returns (A - mean) / sqrt(variance + 1e-8) over all tokens, with the unbiased variance.

    Args:
        add_up: sums a vector over the data-parallel ranks; each must call this, even without samples.
    """
    flat = torch.cat([torch.zeros(0), *advantages]).double()
    count, total = add_up(torch.stack([torch.tensor(float(len(flat))).double(), flat.sum()])).tolist()
    mean = total / max(count, 1.0)
    (squares,) = add_up((flat - mean).square().sum().reshape(1)).tolist()
    scale = (squares / max(count - 1.0, 1.0) + WHITENING_EPSILON) ** -0.5
    return [((part.double() - mean) * scale).to(part.dtype) for part in advantages]
