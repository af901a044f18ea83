"""Flags: what is optimised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slime.arguments.declare import flag


@dataclass
class LossArguments:
    """Loss."""

    loss_type: Literal["policy_loss", "sft_loss", "custom_loss"] = flag(
        "policy_loss",
        "clipped policy gradient, likelihood, or a loss of your own: --loss-spec-path or --custom-loss-function-path",
        instead="the loss of a method is named by --loss-spec-path, see the README of the method's folder",
    )
    loss_spec_path: str | None = flag(
        None,
        "f(args) -> LossSpec: components, their weights and what they ask for; entropy and KL are added by their own "
        "flags; implies --loss-type custom_loss",
    )
    custom_loss_function_path: str | None = flag(
        None,
        "f(args, batch, logits, sum_of_sample_mean), or compute_loss(policy_logits, reference_logits, rewards, "
        "advantages, config) with log-probs of one sample, or what --loss-spec-path takes; implies --loss-type "
        "custom_loss",
    )
    calculate_per_token_loss: bool = flag(
        False, "every trained token weighs the same; otherwise every sample does, whatever its length"
    )
    custom_pg_loss_reducer_function_path: str | None = flag(
        None, "f(total_lengths, response_lengths, loss_masks, per_token) -> reducer of the policy loss"
    )
    eps_clip: float = flag(0.2, "the probability ratio is clipped below 1 - this")
    eps_clip_high: float | None = flag(
        None, "the probability ratio is clipped above 1 + this (default: --eps-clip)"
    )
    eps_clip_c: float | None = flag(
        None, "dual clip, above 1: bound of the loss of tokens with negative advantage"
    )
    entropy_coef: float = flag(0.0, "weight of the entropy bonus")
    use_kl_loss: bool = flag(False, "add the divergence from a reference model to the loss")
    kl_loss_coef: float = flag(0.0, "weight of that divergence; at 0 no reference model is loaded")
    kl_loss_type: Literal["k1", "k2", "k3", "low_var_kl"] = flag(
        "k1", "estimator of that divergence, and of the one of --kl-coef"
    )
    use_unbiased_kl: bool = flag(
        False, "weight the estimator by the probability ratio, so its gradient is unbiased"
    )
    use_opsm: bool = flag(
        False,
        "drop tokens with negative advantage where the policy has drifted (off-policy sequence masking)",
    )
    opsm_delta: float = flag(
        1e-4, "mean log-prob, in nats a token, by which a sample has become less likely before OPSM drops it"
    )
    use_rollout_logprobs: bool = flag(
        False, "take the engine's log-probs as those of the old policy instead of computing them again"
    )
    get_mismatch_metrics: bool = flag(
        False, "measure the weights of --use-tis (or --custom-tis-function-path) without applying them"
    )
    use_tis: bool = flag(
        False, "weigh tokens by the probability of the trainer over that of the engine that sampled them"
    )
    tis_mode: Literal["truncate", "icepop"] = flag(
        "truncate", "clip these weights to their range, or drop tokens outside of it (IcePop)"
    )
    tis_clip: float = flag(2.0, "upper end of that range")
    tis_clip_low: float = flag(0.0, "lower end of that range")
    custom_tis_function_path: str | None = flag(
        None,
        "f(*, args, pg_loss, train_log_probs, rollout_log_probs, loss_masks, total_lengths, response_lengths) -> "
        "(pg_loss, new loss masks, metrics) in place of --tis-mode",
    )


@dataclass
class AdvantageArguments:
    """Advantages."""

    advantage_estimator: Literal[
        "grpo",
        "gspo",
        "cispo",
        "reinforce_plus_plus",
        "reinforce_plus_plus_baseline",
        "ppo",
        "step_wise",
        "on_policy_distillation",
    ] = flag(
        "grpo",
        "how rewards become advantages; gspo and cispo also change the policy loss, ppo trains a critic",
    )
    custom_advantage_function_path: str | None = flag(
        None, 'f(args, rollout_data), which sets rollout_data["advantages"], in place of the estimator'
    )
    disable_compute_advantages_and_returns: bool = flag(
        False, "no advantages, rewards and old log-probs for a custom loss on logits"
    )
    disable_rewards_normalization: bool = flag(False, "the reward itself is the advantage of every token")
    disable_grpo_std_normalization: bool = flag(
        False, "subtract the mean of the group, do not divide by its deviation"
    )
    normalize_advantages: bool = flag(
        False, "whiten advantages over all trained tokens of the rollout and all training processes"
    )
    kl_coef: float = flag(
        0.0,
        "weight of the divergence from a reference model in the reward of a token (reinforce_plus_plus*, ppo)",
    )
    gamma: float = flag(1.0, "discount of the reward from token to token (reinforce_plus_plus, ppo), 0 to 1")
    use_opd: bool = flag(
        False,
        "on-policy distillation: advantages also follow the teacher_log_probs of samples that have them",
    )
    opd_kl_coef: float = flag(1.0, "weight of old minus teacher log-prob, subtracted from the advantage")
