"""What a loss is made of: the inputs of a micro-batch, weighted components, and their sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from slime.losses.distribution import Distribution
from slime.losses.output import LossOutput
from slime.losses.reducers import Reducer
from slime.losses.segments import Segments
from slime.losses.teacher_topk import SubsetMode, TopKTargets

Compute = Callable[[Distribution, "LossBatch", Reducer], LossOutput]
TeacherKind = Literal["sampled", "topk"]


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
        behaviour_log_probs: of tokens that are trained again, those of the weights that wrote them, from which the ratio
            of the policy loss counts; NaN for all others. None: no token is trained again.
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
    behaviour_log_probs: Tensor | None = None
    segments: Segments | None = None
    denominator: float = 1.0


@dataclass(frozen=True)
class Component:
    """One summand. `weight` 0 means: measured, without gradients."""

    name: str
    weight: float
    compute: Compute


@dataclass(frozen=True)
class LossSpec:
    """What is minimised, and which inputs that needs.

    What slime's estimators and regularisers need is added by `training.core.objective`.

    Attributes:
        needs_old: old log-probs of every step before the first one, for advantages or a custom loss.
        distils: what the loss learns from a teacher: log-probs of the "sampled" tokens, or of the "topk" likely ids.
        asks_teacher: False where that half has weight 0: no teacher runs, and its flags may stay.
        subset: whose likely ids are compared where --distill-subset-mode does not say.
        without_hint: a trained sample without a hint is not taught, or by a teacher on its plain prompt, or refused.
        reported: numbers that stand beside the metrics of every rollout, such as weights.
        on_logits: a custom loss f(args, batch, logits, sum_of_sample_mean), in place of components.
    """

    components: tuple[Component, ...] = ()
    needs_advantages: bool = False
    needs_reference: bool = False
    needs_old: bool = False
    needs_rollout_log_probs: bool = False
    distils: TeacherKind | None = None
    asks_teacher: bool = True
    subset: SubsetMode = "student"
    without_hint: Literal["skip", "plain", "refuse"] = "skip"
    reported: Mapping[str, float] = field(default_factory=dict)
    on_logits: Callable[..., Any] | None = None

    @property
    def teacher(self) -> TeacherKind | None:
        """What a teacher is asked for; None: no teacher runs."""
        return self.distils if self.asks_teacher else None


def compute_loss(spec: LossSpec, dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    """Sum of the components; metrics of all of them, and `loss`.

    Raises:
        ValueError: two components report the same metric.
    """
    total: Tensor | None = None
    metrics: dict[str, Tensor] = {}
    for component in spec.components:
        with torch.set_grad_enabled(torch.is_grad_enabled() and component.weight != 0):
            part = component.compute(dist, batch, reducer)
        if twice := metrics.keys() & part.metrics.keys():
            raise ValueError(f"metrics {sorted(twice)} of component {component.name!r} exist already")
        metrics |= part.metrics
        if component.weight != 0:
            weighted = component.weight * part.loss
            total = weighted if total is None else total + weighted
    if total is None:
        raise ValueError("every component of the loss has weight 0")
    return LossOutput(loss=total, metrics=metrics | {"loss": total.detach()})
