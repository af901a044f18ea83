"""Flags: learning from a teacher, and from samples that older weights wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import excludes, flag, needs

OWN_FUNCTION = "{flag} {value} needs --use-tis without a function of its own"


@dataclass
class DistillationArguments:
    """Distillation."""

    teacher_source: str | None = flag(
        None,
        "where log-probs of the teacher come from: trainer (also megatron, mcore) runs --teacher-model on "
        "teacher_tokens_candidates, inference (also infer, sglang, rollout) takes those of the sample (default: "
        "inference with policy_loss, else trainer)",
        aliases=("--opd-type",),
    )
    teacher_model: str = flag(
        "base",
        "teacher in the trainer: base (the model that training began with), self (the policy before the update), "
        "or the folder of a model with the same vocabulary",
        aliases=("--opd-teacher-load", "--prm-teacher-load"),
        main=True,
    )
    distill_topk: int = flag(0, "likely ids a position that a loss over them compares")
    distill_subset_mode: Literal["student", "teacher", "overlap"] | None = flag(
        None, "whose most likely ids these are, or those of both (default: as the loss says)"
    )
    hint_selection: Literal["shortest", "token_optimal", "sequence_optimal"] = flag(
        "shortest",
        "which hint teaches a token: the shortest, or the one whose teacher shares most of its most likely ids "
        "with the student, at the token or over the whole response (or step of an agent)",
    )
    teacher_guidance: float = flag(
        1.0,
        "what a hint changes in the teacher's distribution counts so many times (classifier-free guidance): log-probs on "
        "the hinted prompt, and as many times less one the difference to those on the plain one; 1: as it is",
        least=1,
    )
    hint_m: int | None = flag(None, "use only so many hints of a sample, the shortest ones", least=1)


@dataclass
class StalenessArguments:
    """Samples of older weights."""

    max_staleness: int | None = flag(
        None,
        "tokens written by weights more than this many versions ago weigh --stale-weight (default: no limit)",
        least=0,
        rules=[
            excludes(
                loss_type="custom_loss",
                without=["loss_spec_path"],
                text="{flag} does not reach into a custom loss; drop it",
            )
        ],
    )
    stale_weight: float = flag(
        0.0,
        "weight of these tokens in the loss; 0 leaves them out",
        least=0,
        most=1,
        rules=[needs("max_staleness")],
    )
    tis_spans: Literal["all", "older"] = flag(
        "all",
        "correct every token by --use-tis, or only those that older weights wrote",
        rules=[needs("use_tis", text=OWN_FUNCTION), excludes("custom_tis_function_path", text=OWN_FUNCTION)],
    )
    logprob_gap_alarm: float = flag(
        0.05,
        "warn where trainer and engine differ by more than this many nats a token for the same weights; 0: never",
        least=0,
    )
