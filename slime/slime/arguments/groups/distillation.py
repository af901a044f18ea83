"""Flags: learning from a teacher, and from samples that older weights wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slime.arguments.declare import flag


@dataclass
class DistillationArguments:
    """Distillation."""

    teacher_source: str | None = flag(
        None,
        "where log-probs of the teacher come from: trainer (also megatron, mcore) runs --teacher-model on "
        "teacher_tokens_candidates, inference (also infer, sglang, rollout) takes those of the sample (default: "
        "inference with policy_loss, else trainer)",
        env=("OPENCLAW_COMBINE_OPD_TEACHER_SOURCE",),
        aliases=("--opd-type",),
    )
    teacher_model: str = flag(
        "base",
        "teacher in the trainer: base (the model that training began with), self (the policy before the update), "
        "or the folder of a model with the same vocabulary",
        aliases=("--opd-teacher-load", "--prm-teacher-load"),
    )
    distill_topk: int = flag(
        0, "ids a position over which opd_topk and topk_select distil", env=("OPENCLAW_TOPK_K",)
    )
    distill_subset_mode: Literal["student", "teacher", "overlap"] | None = flag(
        None,
        "whose most likely ids these are, or those of both (default: teacher with opd_topk, student with topk_select)",
        env=("OPENCLAW_TOPK_SUBSET_MODE",),
    )
    hint_selection: Literal["shortest", "token_optimal", "sequence_optimal"] = flag(
        "shortest",
        "which hint teaches a token: the shortest, or the one whose teacher shares most of its most likely ids "
        "with the student, at the token or over the whole response (or step of an agent)",
        env=("OPENCLAW_TOPK_HINT_SELECTION",),
    )
    hint_m: int | None = flag(
        None, "use only so many hints of a sample, the shortest ones", env=("OPENCLAW_TOPK_MAX_CAND",)
    )
    topk_w_rl: float = flag(1.0, "weight of the rewards in topk_select", env=("OPENCLAW_TOPK_W_RL",))
    topk_w_opd: float = flag(
        1.0, "weight of the teacher in topk_select; at 0 it does not run", env=("OPENCLAW_TOPK_W_OPD",)
    )
    topk_plain_teacher: bool = flag(
        True,
        "in topk_select, turns without a hint are drawn to the teacher on their plain prompt, as in OpenClaw-RL; "
        "otherwise they learn from their rewards alone",
    )
    topk_adv_diff_clip: float = flag(
        2.0,
        "teacher minus student log-prob is clipped to +- this, in nats, in topk_select; 0: not clipped",
        env=("OPENCLAW_TOPK_ADV_DIFF_CLIP",),
    )
    topk_eps_clip: float | None = flag(
        None, "--eps-clip of topk_select (default: --eps-clip)", env=("OPENCLAW_TOPK_PPO_CLIP_EPS_LO",)
    )
    topk_eps_clip_high: float | None = flag(
        None,
        "--eps-clip-high of topk_select (default: --eps-clip-high)",
        env=("OPENCLAW_TOPK_PPO_CLIP_EPS_HI",),
    )
    combine_w_rl: float = flag(1.0, "weight of the rewards in combine", env=("OPENCLAW_COMBINE_W_RL",))
    combine_w_opd: float = flag(
        1.0, "weight of the teacher in combine; at 0 it does not run", env=("OPENCLAW_COMBINE_W_OPD",)
    )


@dataclass
class StalenessArguments:
    """Samples of older weights."""

    max_staleness: int | None = flag(
        None,
        "tokens written by weights more than this many versions ago weigh --stale-weight (default: no limit)",
        least=0,
    )
    stale_weight: float = flag(0.0, "weight of these tokens in the loss, 0 to 1; 0 leaves them out")
    tis_spans: Literal["all", "older"] = flag(
        "all", "correct every token by --use-tis, or only those that older weights wrote"
    )
    logprob_gap_alarm: float = flag(
        0.05,
        "warn where trainer and engine differ by more than this many nats a token for the same weights; 0: never",
        least=0,
    )
