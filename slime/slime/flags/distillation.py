"""Flags: distillation from a teacher, and samples of older weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import excludes, flag, needs

OWN_FUNCTION = "{flag} {value} needs --use-tis without a custom function"


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
    distill_topk: int = flag(0, "number of likely ids compared per position")
    distill_subset_mode: Literal["student", "teacher", "overlap"] | None = flag(
        None, "whose likely ids are compared: of student, teacher, or common to both (default: by loss)"
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
    hint_m: int | None = flag(None, "maximum hints per sample, shortest first", least=1)


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
                text="{flag} has no effect on a custom loss; drop it",
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
        "tokens corrected by --use-tis: all, or only those of older weights",
        rules=[needs("use_tis", text=OWN_FUNCTION), excludes("custom_tis_function_path", text=OWN_FUNCTION)],
    )
    logprob_gap_alarm: float = flag(
        0.05,
        "warn if log-probs of trainer and engine differ by more than this many nats per token; 0: never",
        least=0,
    )
