"""Compares the selection of hints and losses over likely ids with slow loops in float64 and with autograd."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from slime.losses import (
    Candidates,
    DenseDistribution,
    Segments,
    TopKTargets,
    choose_hints,
    clipped_topk_loss,
    combined_advantages,
    forward_kl,
    forward_kl_topk,
    log1mexp,
    overlaps,
    reverse_kl_topk,
    tail_log_prob,
    topk_targets,
    weighted_sum,
)

T, V, K, C = 5, 11, 3, 3
MODES = ("student", "teacher", "overlap")
SELECTIONS = ("shortest", "token_optimal", "sequence_optimal")
TEMPERATURE = 0.6
HINTS_OF_TOKENS = [3, 3, 1, 1, 2]  # three samples: tokens 0-1, 2-3 and 4
GROUPS = torch.tensor([0, 0, 1, 1, 2])


class Scene:
    """Random logits of a student before and after an update, and of a teacher for each hint."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.old = torch.randn(T, V, dtype=torch.float64)
        self.new = (self.old + 0.3 * torch.randn(T, V, dtype=torch.float64)).requires_grad_()
        self.teachers = self.old + 1.5 * torch.randn(C, T, V, dtype=torch.float64)
        self.present = torch.tensor([[c < n for n in HINTS_OF_TOKENS] for c in range(C)])

    def candidates(self, mode: str) -> Candidates:
        dists = [DenseDistribution(logits, TEMPERATURE) for logits in self.teachers]
        own = [dist.topk(K) for dist in dists]
        ids = torch.stack([part[1] for part in own])
        if mode != "student":
            return Candidates(self.present, torch.stack([part[0] for part in own]), ids)
        student_ids = DenseDistribution(self.old, TEMPERATURE).topk(K)[1]
        gathered = torch.stack([dist.log_probs(student_ids) for dist in dists])
        return Candidates(self.present, gathered, ids, student_ids)

    def targets(self, mode: Any, selection: Any) -> TopKTargets:
        old = DenseDistribution(self.old, TEMPERATURE)
        return topk_targets(old, self.candidates(mode), K, mode, selection, GROUPS)


def slow_choice(scene: Scene, selection: str) -> tuple[list[int], list[list[int]], list[list[list[int]]]]:
    """Returns the hint of each token, and the student's and teachers' ids [C][T], computed with loops."""
    student = [logits.topk(K).indices.tolist() for logits in scene.old]
    teachers = [[logits.topk(K).indices.tolist() for logits in teacher] for teacher in scene.teachers]
    count = [[len(set(student[t]) & set(teachers[c][t])) for t in range(T)] for c in range(C)]
    chosen = []
    for t in range(T):
        hints = range(HINTS_OF_TOKENS[t])
        if selection == "token_optimal":
            chosen.append(max(hints, key=lambda c: (count[c][t], -c)))
        elif selection == "sequence_optimal":
            same = [u for u in range(T) if GROUPS[u] == GROUPS[t]]
            chosen.append(max(hints, key=lambda c: (sum(count[c][u] for u in same), -c)))
        else:
            chosen.append(0)
    return chosen, student, teachers


def slow_subset(scene: Scene, mode: str, selection: str, t: int) -> tuple[list[int], Tensor, Tensor, Tensor]:
    """Returns the ids of token t, and log-probs [V] of the old and the new student and of the selected teacher."""
    chosen, student, teachers = slow_choice(scene, selection)
    subsets = {"student": student[t], "teacher": teachers[chosen[t]][t]}
    subsets["overlap"] = [v for v in subsets["teacher"] if v in subsets["student"]]
    rows = (scene.old[t], scene.new[t], scene.teachers[chosen[t]][t])
    return subsets[mode], *(torch.log_softmax(row / TEMPERATURE, -1) for row in rows)  # type: ignore[return-value]


def slow_select(
    scene: Scene, mode: str, selection: str, clip: float, low: float, high: float
) -> list[Tensor]:
    losses = []
    for t in range(T):
        ids, old, new, teacher = slow_subset(scene, mode, selection, t)
        total = torch.zeros((), dtype=torch.float64)
        mass = sum(float(old[v].exp()) for v in ids)
        for v in ids:
            weight = float(old[v].exp()) / mass
            gap = float((teacher[v] - old[v]).detach())
            gap = max(-clip, min(clip, gap)) if clip > 0 else gap
            ratio = (new[v] - old[v]).exp()
            plain, clipped = -gap * weight * ratio, -gap * weight * ratio.clamp(1 - low, 1 + high)
            total = total + torch.maximum(plain, clipped)
        losses.append(total)
    return losses


@pytest.mark.parametrize(("mode", "selection"), itertools.product(MODES, SELECTIONS))
@pytest.mark.parametrize("clip", [0.0, 0.7])
def test_each_of_the_nine_cells_has_the_loss_and_gradient_of_the_slow_reference(
    mode: str, selection: str, clip: float
) -> None:
    for seed in range(4):
        scene = Scene(seed)
        weights = torch.tensor([0.5, 0.5, 0.0, 1.0, 1.0])
        dist = DenseDistribution(scene.new, TEMPERATURE)
        output = clipped_topk_loss(
            dist, scene.targets(mode, selection), weighted_sum(weights, 3), clip, 0.2, 0.28
        )
        (fast,) = torch.autograd.grad(output.loss, scene.new)
        slow_loss = sum(
            w * x
            for w, x in zip(
                weights.double(), slow_select(scene, mode, selection, clip, 0.2, 0.28), strict=True
            )
        )
        slow_loss = torch.as_tensor(slow_loss) / 3
        (slow,) = torch.autograd.grad(slow_loss, scene.new)
        assert float(output.loss) == pytest.approx(float(slow_loss), abs=1e-12)
        assert torch.allclose(fast, slow, atol=1e-12)
        chosen = torch.tensor(slow_choice(scene, selection)[0]).float()
        assert float(output.metrics["sel_k_star_mean"]) == pytest.approx(float((chosen * weights).sum() / 3))


@pytest.mark.parametrize(("mode", "selection"), itertools.product(MODES, SELECTIONS))
def test_forward_kl_has_the_values_and_gradient_of_a_sum_over_explicit_bins(
    mode: str, selection: str
) -> None:
    for seed in range(4):
        scene = Scene(seed)
        targets = scene.targets(mode, selection)
        found = forward_kl(
            DenseDistribution(scene.new, TEMPERATURE), targets.ids, targets.teacher_log_probs, targets.valid
        )
        wanted = []
        for t in range(T):
            ids, _, new, teacher = slow_subset(scene, mode, selection, t)
            rest = [v for v in range(V) if v not in ids]
            student_bins = torch.stack([*(new[v].exp() for v in ids), new[rest].exp().sum()])
            teacher_bins = torch.stack([*(teacher[v].exp() for v in ids), teacher[rest].exp().sum()])
            wanted.append((teacher_bins * (teacher_bins / student_bins).log()).sum())
        assert torch.allclose(found, torch.stack(wanted), atol=1e-12)
        output = forward_kl_topk(
            DenseDistribution(scene.new, TEMPERATURE), targets, weighted_sum(torch.ones(T), T)
        )
        assert output.loss.item() == pytest.approx(torch.stack(wanted).mean().item(), abs=1e-12)
        assert 0 < output.metrics["opd_teacher_topk_mass"] <= 1
        assert bool((found >= 0).all())
        weights = torch.arange(1.0, T + 1)
        (fast,) = torch.autograd.grad((found * weights).sum(), scene.new)
        (slow,) = torch.autograd.grad((torch.stack(wanted) * weights).sum(), scene.new)
        assert torch.allclose(fast, slow, atol=1e-12)


def test_forward_kl_over_the_whole_vocabulary_is_the_exact_one_and_nothing_where_both_agree() -> None:
    torch.manual_seed(0)
    student, teacher = torch.randn(2, T, V, dtype=torch.float64)
    everything = torch.arange(V).expand(T, V)
    valid = torch.ones(T, V, dtype=torch.bool)
    log_probs = torch.log_softmax(teacher, -1)
    exact = (log_probs.exp() * (log_probs - torch.log_softmax(student, -1))).sum(-1)
    found = forward_kl(DenseDistribution(student), everything, log_probs, valid)
    assert torch.allclose(found, exact, atol=1e-6)
    assert torch.allclose(
        forward_kl(DenseDistribution(teacher), everything, log_probs, valid), torch.zeros(T).double()
    )
    nobody = forward_kl(DenseDistribution(student), everything, log_probs, torch.zeros_like(valid))
    assert torch.equal(nobody, torch.zeros(T).double())


@pytest.mark.parametrize(("mode", "selection"), itertools.product(MODES, SELECTIONS))
def test_reverse_kl_has_the_value_and_gradient_of_a_sum_over_explicit_bins(mode: str, selection: str) -> None:
    for seed in range(4):
        scene = Scene(seed)
        output = reverse_kl_topk(
            DenseDistribution(scene.new, TEMPERATURE),
            scene.targets(mode, selection),
            weighted_sum(torch.ones(T), T),
        )
        (fast,) = torch.autograd.grad(output.loss, scene.new)
        total = torch.zeros((), dtype=torch.float64)
        for t in range(T):
            ids, _, new, teacher = slow_subset(scene, mode, selection, t)
            rest = [v for v in range(V) if v not in ids]
            student_bins = torch.stack([*(new[v].exp() for v in ids), new[rest].exp().sum()])
            teacher_bins = torch.stack([*(teacher[v].exp() for v in ids), teacher[rest].exp().sum()])
            total = total + (student_bins * (student_bins / teacher_bins).log()).sum()
        (slow,) = torch.autograd.grad(total / T, scene.new)
        assert float(output.loss) == pytest.approx(float(total / T), abs=1e-10)
        assert torch.allclose(fast, slow, atol=1e-9)


def test_the_hybrid_method_matches_its_worked_example() -> None:
    student = torch.tensor([[7, 3], [5, 9]])
    native = torch.tensor([[[7, 1], [2, 4]], [[8, 1], [5, 9]]])
    counts = overlaps(student, native)
    assert counts.tolist() == [[1, 0], [0, 2]]
    present, groups = torch.ones(2, 2, dtype=torch.bool), torch.zeros(2, dtype=torch.long)
    chosen = {name: choose_hints(counts, present, name, groups).tolist() for name in SELECTIONS}  # type: ignore[arg-type]
    assert chosen == {"shortest": [0, 0], "token_optimal": [0, 1], "sequence_optimal": [1, 1]}

    def rows(values: dict[int, float]) -> Tensor:
        rest = (1 - sum(values.values())) / (10 - len(values))
        return torch.tensor([values.get(v, rest) for v in range(10)], dtype=torch.float64).log()

    logits = torch.stack([rows({7: 0.5, 3: 0.3}), rows({5: 0.6, 9: 0.2})]).requires_grad_()
    teacher = torch.stack([rows({8: 0.5, 1: 0.3}), rows({5: 0.3, 9: 0.6})])
    own = DenseDistribution(teacher)
    dist = DenseDistribution(logits)
    log_probs, ids = own.topk(2)
    both = Candidates(torch.ones(1, 2, dtype=torch.bool), log_probs[None], ids[None])
    targets = topk_targets(dist, both, 2, "overlap", "sequence_optimal", groups)
    assert targets.valid.tolist() == [[False, False], [True, True]]
    output = clipped_topk_loss(dist, targets, weighted_sum(torch.tensor([0.5, 0.5])), diff_clip=1.0)
    # -(-0.5199) - 0.25, halved: the first token has no common id and still counts in the mean.
    assert float(output.loss) == pytest.approx((0.75 * math.log(2) - 0.25) / 2, abs=1e-9)

    at_student = Candidates(
        torch.ones(1, 2, dtype=torch.bool), own.log_probs(student)[None], ids[None], student
    )
    targets = topk_targets(dist, at_student, 2, "student", "sequence_optimal", groups)
    current = dist.log_probs(student)
    (slope,) = torch.autograd.grad(
        clipped_topk_loss(_Given(current), targets, weighted_sum(torch.tensor([0.0, 1.0])), 1.0).loss, current
    )
    assert slope[1].tolist() == pytest.approx([0.75 * math.log(2), -0.25])


class _Given:
    """A distribution that has log-probs of given ids only, which is all that a sharded one must provide."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def log_probs(self, ids: Tensor) -> Tensor:
        return self.values

    def logsumexp(self) -> Tensor:
        raise NotImplementedError

    entropy = topk = logsumexp  # type: ignore[assignment]


def test_of_equal_hints_the_shortest_teaches() -> None:
    counts = torch.tensor([[1, 2, 0], [1, 1, 3], [1, 2, 0]])
    present, groups = torch.ones(3, 3, dtype=torch.bool), torch.tensor([0, 0, 1])
    assert choose_hints(counts, present, "token_optimal", groups).tolist() == [0, 0, 1]
    assert choose_hints(counts, present, "sequence_optimal", groups).tolist() == [0, 0, 1]
    nothing = torch.zeros(3, 3, dtype=torch.long)
    assert choose_hints(nothing, present, "sequence_optimal", groups).tolist() == [0, 0, 0]


def test_a_missing_hint_never_contributes_to_the_loss() -> None:
    counts = torch.tensor([[0, 0], [9, 9]])
    present = torch.tensor([[True, True], [False, True]])
    for selection in ("token_optimal", "sequence_optimal"):
        assert choose_hints(counts, present, selection, torch.tensor([0, 1])).tolist() == [0, 1]  # type: ignore[arg-type]


def test_each_step_of_an_agent_selects_its_hint_and_other_tokens_use_hint_0() -> None:
    counts = torch.tensor([[0, 0, 0, 2], [1, 1, 3, 1]])
    groups = torch.tensor([0, 0, -1, 1])
    chosen = choose_hints(counts, torch.ones(2, 4, dtype=torch.bool), "sequence_optimal", groups)
    assert chosen.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("mode", MODES)
def test_a_token_without_a_teacher_has_no_valid_id(mode: Any) -> None:
    scene = Scene(2)
    scene.present[:, 3] = False
    assert scene.targets(mode, "token_optimal").valid.any(-1).tolist()[3] is False
    assert scene.targets("student", "shortest").valid.all(-1).tolist() == [True, True, True, False, True]


@pytest.mark.parametrize("loss", [clipped_topk_loss, reverse_kl_topk])
def test_an_empty_overlap_and_a_token_without_teacher_add_nothing_and_have_no_gradient(loss: Any) -> None:
    logits = torch.randn(2, V, requires_grad=True)
    dist = DenseDistribution(logits)
    ids = torch.tensor([[0, 1], [2, 3]])
    targets = TopKTargets(
        ids,
        torch.zeros(2, 2, dtype=torch.bool),
        dist.log_probs(ids).detach(),
        torch.full((2, 2), -3.0),
        torch.zeros(2),
        torch.zeros(2),
    )
    output = loss(dist, targets, weighted_sum(torch.ones(2)))
    output.loss.backward()
    assert float(output.loss) == 0.0
    assert logits.grad is not None
    assert float(logits.grad.abs().max()) == 0.0


def test_a_subset_of_the_whole_vocabulary_gives_the_full_divergence() -> None:
    scene = Scene(0)
    new, teacher = (torch.log_softmax(x, -1) for x in (scene.new, scene.teachers[0]))
    ids = torch.arange(V).expand(T, V)
    targets = TopKTargets(
        ids, torch.ones(T, V, dtype=torch.bool), new.detach(), teacher, torch.zeros(T), torch.zeros(T)
    )
    output = reverse_kl_topk(DenseDistribution(scene.new), targets, weighted_sum(torch.ones(T), T))
    assert float(output.loss) == pytest.approx(float((new.exp() * (new - teacher)).sum(-1).mean()), abs=1e-7)


def test_the_tail_is_exact_in_fp32_for_tiny_and_for_nearly_whole_subsets() -> None:
    for mass in (1e-12, 1e-3, 0.5, 0.999, 1 - 1e-6):
        inside = torch.tensor([math.log(mass)], dtype=torch.float64)
        assert float(log1mexp(inside)) == pytest.approx(math.log1p(-mass), rel=1e-9, abs=1e-30)
    whole = torch.tensor([[math.log(0.5), math.log(0.5)]], requires_grad=True)
    tail = tail_log_prob(whole, torch.ones(1, 2, dtype=torch.bool))
    tail.sum().backward()
    assert float(tail) == pytest.approx(math.log(1e-7), rel=1e-3)
    assert whole.grad is not None
    assert bool(torch.isfinite(whole.grad).all())


def test_a_policy_that_has_not_moved_has_ratio_one_and_the_gradient_of_the_advantages() -> None:
    scene = Scene(1)
    logits = scene.old.clone().requires_grad_()
    dist = DenseDistribution(logits, TEMPERATURE)
    output = clipped_topk_loss(dist, scene.targets("student", "shortest"), weighted_sum(torch.ones(T)), 1.0)
    assert float(output.metrics["opd_pg_clipfrac"]) == 0.0
    weighted = scene.targets("student", "shortest")
    share = torch.softmax(weighted.old_log_probs, -1)
    advantage = (weighted.teacher_log_probs - weighted.old_log_probs).clamp(-1, 1) * share
    assert float(output.loss) == pytest.approx(-float(advantage.sum()))


def test_an_exploded_ratio_stays_finite() -> None:
    logits = torch.tensor([[0.0, 200.0, 0.0]], requires_grad=True)
    ids = torch.tensor([[0, 1]])
    old = torch.tensor([[-0.1, -200.0]])
    targets = TopKTargets(ids, torch.ones(1, 2, dtype=torch.bool), old, old, torch.zeros(1), torch.zeros(1))
    output = clipped_topk_loss(DenseDistribution(logits), targets, weighted_sum(torch.ones(1)))
    output.loss.backward()
    assert float(output.loss) == 0.0
    assert logits.grad is not None
    assert bool(torch.isfinite(logits.grad).all())


def test_only_taught_tokens_get_the_teacher_in_the_combined_advantage() -> None:
    reward, old = torch.tensor([1.0, -1.0]), torch.tensor([-2.0, -2.0])
    taught = torch.tensor([True, False])
    advantages, gap = combined_advantages(reward, old, torch.tensor([-1.5, 0.0]), taught, 2.0, 3.0)
    assert advantages.tolist() == [3.5, -2.0]
    assert gap.tolist() == [0.5, 0.0]


def test_a_centred_teacher_has_zero_mean_over_a_response() -> None:
    old = torch.tensor([-2.0, -1.0, -4.0, -1.0], dtype=torch.float64)
    teacher = torch.tensor([-1.0, -3.0, -3.0, 0.0], dtype=torch.float64)
    taught = torch.tensor([True, True, True, False])
    masks = tuple(torch.ones(count, dtype=torch.bool) for count in (3, 1))
    segments = Segments((5, 3), masks)
    advantages, gap = combined_advantages(
        torch.tensor([0.0, 0.0, 0.0, 1.0]).double(), old, teacher, taught, 2.0, 3.0, segments
    )
    assert gap.tolist() == [1.0, -2.0, 1.0, 0.0]
    assert advantages.tolist() == [3.0, -6.0, 3.0, 2.0]


@pytest.mark.parametrize("clip", [0.0, 0.7])
def test_clipping_never_pushes_an_id_away_from_its_teacher(clip: float) -> None:
    """Clipping only the positive terms of a divergence would do that: the loss falls below 0 with growing distance of
    the student. Here the loss is a surrogate whose value may be negative, and only the signs of its gradient matter.
    """
    for seed in range(4):
        scene = Scene(seed)
        targets = scene.targets("student", "shortest")
        free = targets.old_log_probs.clone().requires_grad_()

        class Free(DenseDistribution):
            def log_probs(self, ids: Tensor, found: Tensor = free) -> Tensor:
                return found

        loss = clipped_topk_loss(Free(scene.old), targets, weighted_sum(torch.ones(T)), clip).loss
        (gradient,) = torch.autograd.grad(loss, free)
        difference = targets.teacher_log_probs - targets.old_log_probs
        assert torch.equal(-gradient.sign(), difference.sign())
        mean = -gradient / torch.softmax(targets.old_log_probs, -1)
        assert bool((mean.abs() <= (clip or math.inf) + 1e-12).all())


def test_the_normaliser_is_computed_once_for_all_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = torch.logsumexp
    scene = Scene(0)
    dist = DenseDistribution(scene.new, TEMPERATURE)
    targets = scene.targets("student", "token_optimal")

    def counted(values: Tensor, dim: int) -> Tensor:
        calls.append(values.shape[-1])
        return real(values, dim)

    monkeypatch.setattr(torch, "logsumexp", counted)
    dist.log_probs(torch.zeros(T, dtype=torch.long))
    clipped_topk_loss(dist, targets, weighted_sum(torch.ones(T)))
    reverse_kl_topk(dist, targets, weighted_sum(torch.ones(T)))
    assert calls.count(V) == 1
