"""Distillation losses over a few ids per position. Gradients flow only through the student's log-probs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from slime.losses.component import LOG_RATIO_LIMIT, LossBatch, clipped_surrogate
from slime.losses.formula import Distribution, LossOutput, Reducer, Segments, TeacherSettings, settings_of
from slime.losses.teacher_topk import SubsetMode, TopKTargets

NO_MASS = -1e4  # replaces log 0, whose gradients are NaN
ALL_MASS = -1e-7  # largest log-prob of a subset that leaves a tail


def log1mexp(values: Tensor) -> Tensor:
    """Returns log(1 - exp(x)) for x < 0, without cancellation at either end (Maechler 2012)."""
    near = torch.log(-torch.expm1(values.clamp(min=-math.log(2.0))))
    far = torch.log1p(-torch.exp(values.clamp(max=-math.log(2.0))))
    return torch.where(values > -math.log(2.0), near, far)


def tail_log_prob(log_probs: Tensor, valid: Tensor) -> Tensor:
    """Returns the log-prob [T] of all ids other than the `valid` ones of `log_probs` [T, K]."""
    return log1mexp(_mass(log_probs, valid).clamp(max=ALL_MASS))


def _kl_over_bins(log_probs: Tensor, others: Tensor, valid: Tensor) -> Tensor:
    """Returns the KL [T] between two distributions over the `valid` ids and one bin for all others; all [T, K]."""
    terms = torch.where(valid, log_probs.exp() * (log_probs - others), torch.zeros_like(log_probs))
    tail = tail_log_prob(log_probs, valid)
    return terms.sum(-1) + tail.exp() * (tail - tail_log_prob(others, valid))


def reverse_kl_topk(dist: Distribution, targets: TopKTargets, reducer: Reducer) -> LossOutput:
    """Returns KL(student || teacher) over K ids and one bin for all others (SDFT, Shenfeld 2026; SDPO,
    Huebotter 2026).

    Sum over K + 1 bins of p_s (log p_s - log p_t), in nats. Without a valid id, both have all their mass in
    the tail, and the divergence is 0.
    """
    valid = targets.valid
    student = dist.log_probs(targets.ids)
    teacher = targets.teacher_log_probs
    divergence = _kl_over_bins(student, teacher, valid)
    return _output(reducer(divergence), targets, _masses(student, targets), reducer)


def forward_kl(dist: Distribution, ids: Tensor, teacher: Tensor, valid: Tensor) -> Tensor:
    """Returns KL(teacher || student) of each position [T] over its `valid` ids and one bin for all others, in
    nats.

    Sum over K + 1 bins of p_t (log p_t - log p_s). The student must cover all of the teacher's ids; for the
    reverse KL, a part is sufficient. A position without a valid id has divergence 0.

    Args:
        ids, valid: [T, K].
        teacher: [T, K], log-probs of the ids over the whole vocabulary.
    """
    return _kl_over_bins(teacher, dist.log_probs(ids), valid)


def forward_kl_topk(dist: Distribution, targets: TopKTargets, reducer: Reducer) -> LossOutput:
    """Returns `forward_kl` of the targets, in nats."""
    divergence = forward_kl(dist, targets.ids, targets.teacher_log_probs, targets.valid)
    loss = reducer(divergence)
    with torch.no_grad():
        measured = _masses(dist.log_probs(targets.ids), targets)
    return _output(loss, targets, measured, reducer)


def _masses(student: Tensor, targets: TopKTargets) -> dict[str, Tensor]:
    return {
        "opd_student_topk_mass": _mass(student, targets.valid).exp(),
        "opd_teacher_topk_mass": _mass(targets.teacher_log_probs, targets.valid).exp(),
    }


def clipped_topk_loss(
    dist: Distribution,
    targets: TopKTargets,
    reducer: Reducer,
    diff_clip: float = 2.0,
    eps_clip: float = 0.2,
    eps_clip_high: float | None = None,
) -> LossOutput:
    """Returns PPO's clip on each id v of the subset S, summed over S (arXiv 2603.10165 v2).

    w_v = softmax of the old log-probs over S; d_v = teacher - old log-prob, clipped to +- diff_clip (0: not
    clipped); A_v = d_v w_v. A position without a valid id has loss 0.

    Args:
        eps_clip, eps_clip_high: see `policy_loss`.
    """
    valid, old = targets.valid, targets.old_log_probs
    weights = torch.softmax(old.masked_fill(~valid, NO_MASS), dim=-1)
    gap = torch.where(valid, targets.teacher_log_probs - old, torch.zeros_like(old))
    if diff_clip > 0:
        gap = gap.clamp(-diff_clip, diff_clip)
    log_ratio = (dist.log_probs(targets.ids) - old).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    limits = 1 - eps_clip, 1 + (eps_clip if eps_clip_high is None else eps_clip_high)
    per_id, hit = clipped_surrogate(log_ratio.exp(), gap * weights, limits)
    loss = reducer(per_id.sum(-1))
    measured = {
        "opd_pg_clipfrac": (hit * weights).sum(-1),
        "opd_teacher_student_logp_topk_abs_mean": (gap.abs() * weights).sum(-1),
    }
    return _output(loss, targets, measured, reducer)


def _mass(log_probs: Tensor, valid: Tensor) -> Tensor:
    return log_probs.masked_fill(~valid, NO_MASS).logsumexp(-1)


def _output(loss: Tensor, targets: TopKTargets, measured: dict[str, Tensor], reducer: Reducer) -> LossOutput:
    measured |= {
        "opd_subset_size": targets.valid.sum(-1),
        "sel_overlap_at_k_star": targets.overlap,
        "sel_k_star_mean": targets.hint,
    }
    metrics = {name: reducer(values.detach().to(loss.dtype)) for name, values in measured.items()}
    return LossOutput(loss, {"opd_loss": loss.detach(), **metrics})


def combined_advantages(
    rewards: Tensor,
    old_log_probs: Tensor,
    teacher_log_probs: Tensor,
    taught: Tensor,
    w_rl: float,
    w_opd: float,
    centred: Segments | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns w_opd (teacher - old log-prob) + w_rl reward, and the first difference; all [T].

    Args:
        centred: samples whose mean difference is subtracted from the differences of their tokens (arXiv
            2603.12273).
        taught: [T] of bool; tokens without a teacher have no distillation term.
    """
    gap = torch.where(taught, teacher_log_probs - old_log_probs, torch.zeros_like(old_log_probs))
    if centred is not None:
        gap = torch.where(taught, gap - centred.spread(centred.mean(gap)), gap)
    return w_opd * gap + w_rl * rewards, gap


def targets_of(batch: LossBatch) -> TopKTargets:
    """Returns the teacher's log-probs of likely ids. Raises ValueError if there was no teacher."""
    if batch.targets is None:
        raise ValueError("a distillation over likely ids needs the teacher's log-probs of them")
    return batch.targets


def topk_divergence(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    """Returns `reverse_kl_topk` of the batch, as a component."""
    return reverse_kl_topk(dist, targets_of(batch), reducer)


def topk_settings(args: object, subset: SubsetMode) -> dict[str, float]:
    """Returns the selection of likely ids and hints as numbers for `LossSpec.reported`.

    Args:
        args: `TeacherSettings`, or the arguments passed to a hook.
        subset: as in `LossSpec`.
    """
    settings = settings_of(TeacherSettings, args)
    modes, selections = ("student", "overlap", "teacher"), ("shortest", "token_optimal", "sequence_optimal")
    return {
        "distill_subset_mode_id": float(modes.index(settings.distill_subset_mode or subset)),
        "hint_selection_mode_id": float(selections.index(settings.hint_selection)),
    }
