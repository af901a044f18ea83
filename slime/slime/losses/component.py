"""What a loss is made of: the inputs of a micro-batch, weighted components, and their sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from slime.losses.distribution import Distribution
from slime.losses.output import LossOutput
from slime.losses.reducers import Reducer
from slime.losses.segments import Segments
from slime.losses.teacher_topk import TopKTargets


@dataclass(frozen=True)
class LossBatch:
    """The trained response tokens of one micro-batch, all [T]; None where there is no such value.

    `old_log_probs` is None while the policy has not moved since sampling's weights were taken over: they are
    then the new log-probs themselves, and the importance ratio is exactly 1.

    Attributes:
        rewards: of the samples as they came [S].
        teacher_log_probs: of the sampled tokens; 0 where `taught`, of bool, says that there is no teacher.
        targets: what the teacher says of its or the student's likely ids [T, K].
        older: of bool, tokens that older weights than those before the update wrote.
        segments: which token belongs to which sample.
        denominator: samples of the whole step, or its tokens with --calculate-per-token-loss.
    """

    ids: Tensor
    advantages: Tensor | None = None
    old_log_probs: Tensor | None = None
    ref_log_probs: Tensor | None = None
    rollout_log_probs: Tensor | None = None
    rewards: Tensor | None = None
    teacher_log_probs: Tensor | None = None
    taught: Tensor | None = None
    targets: TopKTargets | None = None
    older: Tensor | None = None
    segments: Segments | None = None
    denominator: float = 1.0


@dataclass(frozen=True)
class Component:
    """One summand. `weight` 0 means: measured, without gradients."""

    name: str
    weight: float
    compute: Callable[[Distribution, LossBatch, Reducer], LossOutput]


@dataclass(frozen=True)
class LossSpec:
    """What is minimised, and which inputs that needs.

    Attributes:
        teacher: what a teacher must say: log-probs of the "sampled" tokens, or of the "topk" likely ids.
        needs_old: old log-probs of every step before the first one, for advantages or a custom loss.
        on_logits: a custom loss f(args, batch, logits, sum_of_sample_mean), in place of components.
    """

    components: tuple[Component, ...] = ()
    needs_advantages: bool = False
    needs_reference: bool = False
    needs_old: bool = False
    needs_rollout_log_probs: bool = False
    teacher: Literal["sampled", "topk"] | None = None
    on_logits: Callable[..., Any] | None = None
