"""Flags: from rewards to advantages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import excludes, flag, needs
from slime.flags.loss import NOT_FOR_SFT

SHAPED = ("reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo")
DISCOUNTED = ("reinforce_plus_plus", "ppo")


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
        "advantage estimator; gspo and cispo also change the policy loss, ppo trains a critic",
        rules=[
            excludes(
                advantage_estimator=("gspo", "cispo"),
                loss_type="custom_loss",
                without=["loss_spec_path"],
                text="{flag} {value} also selects a policy loss, but the loss is a custom one; use grpo",
            ),
            excludes(
                "normalize_advantages",
                advantage_estimator="step_wise",
                text="--normalize-advantages would undo the normalisation of single steps; drop it",
            ),
            excludes(
                "use_opd",
                advantage_estimator="on_policy_distillation",
                text="--use-opd adds distillation to another estimator; drop one of the two",
            ),
            excludes(
                "custom_advantage_function_path",
                advantage_estimator="ppo",
                text="--custom-advantage-function-path replaces ppo's advantages, so its critic would "
                "learn nothing; drop one of the two",
            ),
            excludes(
                "disable_compute_advantages_and_returns",
                advantage_estimator="ppo",
                text="{flag} ppo needs advantages; drop the flag that disables them",
            ),
        ],
        main=True,
    )
    custom_advantage_function_path: str | None = flag(
        None,
        'f(args, rollout_data) that sets rollout_data["advantages"]; replaces the estimator',
        rules=[NOT_FOR_SFT],
    )
    disable_compute_advantages_and_returns: bool = flag(
        False,
        "skip advantages, rewards and old log-probs, for a custom loss on logits",
        rules=[
            needs(
                loss_type=("custom_loss", "sft_loss"),
                text="{flag} has no effect with --loss-type {loss_type}; drop it",
            ),
            excludes(
                "loss_spec_path", text="{flag} has no effect with --loss-spec-path {loss_spec_path}; drop it"
            ),
        ],
    )
    disable_rewards_normalization: bool = flag(False, "use the reward itself as the advantage of every token")
    disable_grpo_std_normalization: bool = flag(
        False,
        "subtract the group's mean, without dividing by its deviation",
        rules=[
            excludes(
                "disable_rewards_normalization",
                text="{flag} changes nothing with --disable-rewards-normalization; drop it",
            )
        ],
    )
    normalize_advantages: bool = flag(
        False,
        "whiten advantages over all trained tokens of the rollout and all training processes",
        rules=[NOT_FOR_SFT],
    )
    kl_coef: float = flag(
        0.0,
        "weight of the KL divergence from a reference model in token rewards (reinforce_plus_plus*, ppo)",
        least=0,
        rules=[
            NOT_FOR_SFT,
            excludes(
                "kl_loss_coef",
                text="--kl-coef and --kl-loss-coef both penalize the KL divergence; drop one of them",
            ),
            needs(
                advantage_estimator=SHAPED,
                text=f"--kl-coef shapes the rewards of {' and '.join(SHAPED)}, not of "
                f"{{advantage_estimator}}; use --use-kl-loss with --kl-loss-coef",
            ),
        ],
    )
    gamma: float = flag(
        1.0,
        "discount of the reward from token to token (reinforce_plus_plus, ppo)",
        least=0,
        most=1,
        rules=[
            needs(
                advantage_estimator=DISCOUNTED,
                text="{flag} has no effect with --advantage-estimator {advantage_estimator}; drop it",
            )
        ],
    )
    use_opd: bool = flag(
        False,
        "on-policy distillation: add the teacher's log-probs to advantages, for samples with "
        "teacher_log_probs",
        rules=[NOT_FOR_SFT],
    )
    opd_kl_coef: float = flag(
        1.0,
        "weight of old minus teacher log-prob, subtracted from the advantage",
        least=0,
        rules=[needs("use_opd")],
    )
