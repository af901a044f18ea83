"""Selects the hint that teaches a token, and the ids: hint selection for top-K distillation (arXiv 2603.10165 v2).

Every hint of a sample has a separate teacher. All T tokens of a micro-batch are processed at once; C is the largest
number of hints of a sample in it, and samples with fewer lack the later ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from slime.losses.formula import Distribution

SubsetMode = Literal["student", "teacher", "overlap"]
HintSelection = Literal["shortest", "token_optimal", "sequence_optimal"]
OUTSIDE = -1


@dataclass(frozen=True)
class Candidates:
    """The teachers' distributions, at the temperature of the student.

    Attributes:
        present: [C, T] of bool, whether the sample of the token has this hint; hint 0 is the shortest.
        log_probs: [C, T, K], of `student_ids` where these are given, else of `own_ids`.
        own_ids: [C, T, K], the teacher's most likely ids; None if they were not requested.
        student_ids: [T, K], the student's.
    """

    present: Tensor
    log_probs: Tensor
    own_ids: Tensor | None = None
    student_ids: Tensor | None = None


@dataclass(frozen=True)
class TopKTargets:
    """The inputs of a distillation over few ids, without gradients.

    Attributes:
        ids: [T, K].
        valid: [T, K] of bool; False if the id is not in the subset, or no teacher covers the token.
        old_log_probs, teacher_log_probs: [T, K], over the whole vocabulary, not only over the subset.
        hint: [T], which hint teaches.
        overlap: [T], how many likely ids it shares with the student; 0 where that was not counted.
    """

    ids: Tensor
    valid: Tensor
    old_log_probs: Tensor
    teacher_log_probs: Tensor
    hint: Tensor
    overlap: Tensor


def overlaps(student_ids: Tensor, teacher_ids: Tensor) -> Tensor:
    """Returns the number of common ids [C, T] of [T, K] and [C, T, K]. Ids in a row must be unique."""
    return (student_ids.unsqueeze(-1) == teacher_ids.unsqueeze(-2)).sum((-1, -2))


def choose_hints(counts: Tensor, present: Tensor, selection: HintSelection, groups: Tensor) -> Tensor:
    """Returns the hint that teaches each token [T]; in a tie the shortest.

    Args:
        counts: [C, T] common ids.
        present: [C, T].
        groups: [T], for sequence_optimal: tokens with one number get one hint; OUTSIDE gets hint 0.

    Raises:
        ValueError: for an unknown selection.
    """
    if selection not in get_args(HintSelection):
        raise ValueError(
            f"unknown selection of hints {selection!r}; choose {', '.join(get_args(HintSelection))}"
        )
    num_hints, length = counts.shape
    if selection == "shortest" or num_hints == 1:
        return torch.zeros(length, dtype=torch.long, device=counts.device)
    scores = torch.where(present, counts, OUTSIDE)
    if selection == "sequence_optimal":
        inside = groups.clamp(min=0)
        number = int(inside.max()) + 1 if length else 0
        sums = scores.new_zeros(num_hints, number).index_add(1, inside, scores * (groups != OUTSIDE))
        scores = torch.where(groups != OUTSIDE, sums[:, inside], 0)
    # torch.argmax does not guarantee an order among equal values; this makes the first one the largest
    first = torch.arange(num_hints, device=counts.device).unsqueeze(-1)
    return (scores * num_hints - first).argmax(0)


@torch.no_grad()
def topk_targets(
    student: Distribution,
    candidates: Candidates,
    k: int,
    mode: SubsetMode,
    selection: HintSelection,
    groups: Tensor,
) -> TopKTargets:
    """Selects hint and ids of every token.

    Args:
        student: the policy before the update.
        k: K.
        groups: see `choose_hints`.

    Raises:
        ValueError: for an unknown mode or selection.
    """
    if mode not in get_args(SubsetMode):
        raise ValueError(f"unknown subset of ids {mode!r}; choose {', '.join(get_args(SubsetMode))}")
    counted = selection != "shortest" and candidates.own_ids is not None
    student_ids = candidates.student_ids
    if student_ids is None and (mode == "overlap" or counted):
        student_ids = student.topk(k)[1]
    counts = torch.zeros_like(candidates.present, dtype=torch.long)
    if counted:
        assert student_ids is not None and candidates.own_ids is not None
        counts = overlaps(student_ids, candidates.own_ids)
    hint = choose_hints(counts, candidates.present, selection, groups)
    log_probs, taught = _at(candidates.log_probs, hint), candidates.present.any(0)
    own_ids = None if candidates.own_ids is None else _at(candidates.own_ids, hint)
    if mode == "student":
        assert student_ids is not None
        ids, valid = student_ids, torch.ones_like(student_ids, dtype=torch.bool)
    else:
        assert own_ids is not None
        ids, valid = own_ids, torch.ones_like(own_ids, dtype=torch.bool)
    if mode == "overlap":
        assert student_ids is not None
        valid = (ids.unsqueeze(-1) == student_ids.unsqueeze(-2)).any(-1)
    return TopKTargets(
        ids=ids,
        valid=valid & taught.unsqueeze(-1),
        old_log_probs=student.log_probs(ids),
        teacher_log_probs=log_probs,
        hint=hint,
        overlap=counts.gather(0, hint.unsqueeze(0)).squeeze(0),
    )


def _at(values: Tensor, hint: Tensor) -> Tensor:
    """[C, T, K] -> [T, K] of each token's selected hint."""
    return values[hint, torch.arange(len(hint), device=hint.device)]
