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
        "source of the teacher's log-probs: trainer (--teacher-model) or inference (default: "
        "inference with policy_loss)",
        aliases=("--opd-type",),
    )
    teacher_model: str = flag(
        "base",
        "teacher in the trainer: base (first model), self (before the update), or a folder with the "
        "same vocabulary",
        aliases=("--opd-teacher-load", "--prm-teacher-load"),
        main=True,
    )
    distill_topk: int = flag(0, "most likely ids per position to compare")
    distill_subset_mode: Literal["student", "teacher", "overlap"] | None = flag(
        None, "most likely ids to compare: of student, teacher, or common to both (default: by loss)"
    )
    hint_selection: Literal["shortest", "token_optimal", "sequence_optimal"] = flag(
        "shortest",
        "hint to use: the shortest, or the one whose teacher is closest to the student, per token or "
        "response",
    )
    teacher_guidance: float = flag(
        1.0,
        "classifier-free guidance: factor on hinted minus plain log-probs of the teacher; 1: off",
        least=1,
    )
    hint_m: int | None = flag(None, "most hints used per sample, the shortest ones", least=1)


@dataclass
class StalenessArguments:
    """Samples of older weights."""

    max_staleness: int | None = flag(
        None,
        "tokens from weights more than this many versions old get --stale-weight (default: no limit)",
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
        "loss weight of tokens beyond --max-staleness; 0 excludes them",
        least=0,
        most=1,
        rules=[needs("max_staleness")],
    )
    tis_spans: Literal["all", "older"] = flag(
        "all",
        "correct all tokens by --use-tis, or only those of older weights",
        rules=[needs("use_tis", text=OWN_FUNCTION), excludes("custom_tis_function_path", text=OWN_FUNCTION)],
    )
    logprob_gap_alarm: float = flag(
        0.05,
        "log-prob difference of trainer and engine, nats per token, from which to warn; 0: never",
        least=0,
    )
