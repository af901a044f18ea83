"""Flags: the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import excludes, flag, needs

NOT_FOR_SFT = excludes(loss_type="sft_loss")
POLICY_LOSS = excludes(
    loss_type="custom_loss",
    without=["loss_spec_path"],
    text="{flag} has no effect with a custom loss; drop it",
)
OF_TIS = needs(
    "use_tis",
    "get_mismatch_metrics",
    text="--tis-mode, --tis-clip, --tis-clip-low and --custom-tis-function-path need --use-tis",
)
NOTHING_TO_WEIGH = (
    "{flag} uses the engine's log-probs as old ones, so all importance weights are 1; drop "
    "--use-tis and --get-mismatch-metrics"
)


@dataclass
class LossArguments:
    """Loss."""

    loss_type: Literal["policy_loss", "sft_loss", "custom_loss"] = flag(
        "policy_loss",
        "clipped policy gradient, supervised fine-tuning, or a custom loss: --loss-spec-path or "
        "--custom-loss-function-path",
        instead="the loss of a method is selected by --loss-spec-path, see the README of the method's folder",
        rules=[
            excludes(
                loss_type="custom_loss",
                without=["custom_loss_function_path", "loss_spec_path"],
                text="{flag} {value} needs --loss-spec-path or --custom-loss-function-path",
            )
        ],
        main=True,
    )
    loss_spec_path: str | None = flag(
        None,
        "f(args) -> LossSpec; implies --loss-type custom_loss; entropy and KL are separate flags",
        rules=[NOT_FOR_SFT],
    )
    custom_loss_function_path: str | None = flag(
        None,
        "f(args, batch, logits, sum_of_sample_mean), or compute_loss(policy_logits, reference_logits, rewards, "
        "advantages, config) with log-probs of one sample, or a --loss-spec-path function; implies --loss-type "
        "custom_loss",
        rules=[NOT_FOR_SFT],
    )
    calculate_per_token_loss: bool = flag(False, "weight all trained tokens equally, instead of all samples")
    custom_pg_loss_reducer_function_path: str | None = flag(
        None,
        "f(total_lengths, response_lengths, loss_masks, per_token) -> reducer of the policy loss",
        rules=[NOT_FOR_SFT, POLICY_LOSS],
    )
    eps_clip: float = flag(0.2, "probability ratio's lower bound: 1 minus this value", least=0, below=1)
    eps_clip_high: float | None = flag(
        None, "probability ratio's upper bound: 1 plus this value (default: --eps-clip)", least=0
    )
    eps_clip_c: float | None = flag(
        None,
        "dual clip: bounds the loss of tokens with negative advantage",
        above=1,
        rules=[
            NOT_FOR_SFT,
            POLICY_LOSS,
            excludes(
                advantage_estimator="cispo",
                text="{flag} bounds a clipped ratio, which cispo does not use; drop it",
            ),
        ],
    )
    entropy_coef: float = flag(0.0, "weight of the entropy bonus", least=0, rules=[NOT_FOR_SFT, POLICY_LOSS])
    echo_coef: float = flag(
        0.0,
        "weight of the cross-entropy on the next message (ECHO), in the same forward pass",
        least=0,
        rules=[NOT_FOR_SFT, POLICY_LOSS],
    )
    use_kl_loss: bool = flag(
        False, "add the KL divergence from a reference model to the loss", rules=[NOT_FOR_SFT]
    )
    kl_loss_coef: float = flag(
        0.0,
        "weight of the --use-kl-loss term; 0: load no reference model",
        least=0,
        rules=[needs("use_kl_loss", text="{flag} {value} needs --use-kl-loss")],
        main=True,
    )
    kl_loss_type: Literal["k1", "k2", "k3", "low_var_kl"] = flag(
        "k1", "estimator of the KL divergence of --use-kl-loss and of --kl-coef"
    )
    use_unbiased_kl: bool = flag(
        False,
        "weight the estimator of --use-kl-loss by the probability ratio, so its gradient is unbiased",
        rules=[needs("kl_loss_coef", text="{flag} needs --use-kl-loss and a --kl-loss-coef above 0")],
    )
    use_opsm: bool = flag(
        False,
        "drop tokens with negative advantage if the policy has drifted (off-policy sequence masking)",
        rules=[NOT_FOR_SFT, POLICY_LOSS],
    )
    opsm_delta: float = flag(
        1e-4,
        "decrease of a sample's mean log-prob, nats per token, above which --use-opsm drops tokens",
        least=0,
        rules=[needs("use_opsm")],
    )
    use_rollout_logprobs: bool = flag(
        False,
        "use the engine's log-probs as old log-probs, instead of recomputing them",
        rules=[
            NOT_FOR_SFT,
            excludes("use_tis", text=NOTHING_TO_WEIGH),
            excludes("get_mismatch_metrics", text=NOTHING_TO_WEIGH),
        ],
    )
    get_mismatch_metrics: bool = flag(
        False,
        "measure the importance weights of --use-tis (or --custom-tis-function-path) without applying them",
        rules=[NOT_FOR_SFT, POLICY_LOSS],
    )
    use_tis: bool = flag(
        False,
        "importance sampling: weight tokens by the trainer's probability divided by the engine's",
        rules=[NOT_FOR_SFT, POLICY_LOSS],
    )
    tis_mode: Literal["truncate", "icepop"] = flag(
        "truncate",
        "clip importance weights to their range, or drop tokens outside it (IcePop)",
        rules=[OF_TIS],
    )
    tis_clip: float = flag(2.0, "upper bound of the importance weights of --use-tis", least=0, rules=[OF_TIS])
    tis_clip_low: float = flag(
        0.0, "lower bound of the importance weights of --use-tis", least=0, rules=[OF_TIS]
    )
    custom_tis_function_path: str | None = flag(
        None,
        "f(*, args, pg_loss, train_log_probs, rollout_log_probs, loss_masks, total_lengths, "
        "response_lengths) -> (pg_loss, new loss masks, metrics); replaces --tis-mode",
        rules=[OF_TIS],
    )
