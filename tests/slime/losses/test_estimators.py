"""Compares advantages of tokens with loops in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from slime.errors import DataError
from slime.losses import (
    AdvantageSettings,
    SampleTerms,
    Span,
    distilled,
    estimator,
    normalized_spans,
    spans_of,
    whiten,
)
from slime.types import Sample

MASK = [1, 0, 1, 1, 0]
OLD, REF, TEACHER = [-1.0, -2.0, -0.5], [-1.5, -1.0, -0.5], [-0.25, -2.5, -1.0]


def terms(reward: float = 2.0, **changes: object) -> SampleTerms:
    values: dict[str, Any] = {
        "reward": reward,
        "mask": torch.tensor(MASK, dtype=torch.bool),
        "old_log_probs": torch.tensor(OLD),
        "ref_log_probs": torch.tensor(REF),
        "teacher_log_probs": torch.tensor(TEACHER),
    }
    return SampleTerms(**(values | changes))


def args(name: Any, **changes: Any) -> AdvantageSettings:
    return AdvantageSettings(advantage_estimator=name, **changes)


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo"])
def test_the_reward_of_the_sample_applies_to_every_token(name: str) -> None:
    assert estimator(args(name))(terms()).tolist() == [2.0] * 3


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
def test_reinforce_plus_plus_is_a_discounted_return_of_shaped_rewards(
    kind: Any, gamma: float, kl_coef: float
) -> None:
    rewards, position = [0.0] * 5, 0
    for t in range(5):
        if MASK[t]:
            d = OLD[position] - REF[position]
            kl = {"k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d}[kind]
            rewards[t] = -kl_coef * kl
            position += 1
    rewards[3] += 2.0
    expected = [sum(gamma ** (u - t) * rewards[u] for u in range(t, 5)) for t in range(5) if MASK[t]]
    found = estimator(args("reinforce_plus_plus", kl_coef=kl_coef, gamma=gamma, kl_loss_type=kind))(terms())
    assert found.tolist() == pytest.approx(expected, rel=1e-6)


def test_the_baseline_variant_subtracts_the_divergence_of_the_token() -> None:
    found = estimator(args("reinforce_plus_plus_baseline", kl_coef=0.1))(terms())
    assert found.tolist() == pytest.approx([2 - 0.1 * (o - r) for o, r in zip(OLD, REF, strict=True)])


def test_distillation_works_as_an_estimator_and_as_a_component() -> None:
    gap = [o - q for o, q in zip(OLD, TEACHER, strict=True)]
    found = estimator(args("on_policy_distillation"))(terms())
    assert found.tolist() == pytest.approx([-x for x in gap])
    added = distilled(torch.full((3,), 2.0), terms(), 0.5)
    assert added.tolist() == pytest.approx([2 - 0.5 * x for x in gap])


def test_a_sample_without_teacher_is_not_distilled() -> None:
    """The engine's own log-probs in place of the teacher's would give such samples a spurious advantage."""
    advantages = torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(distilled(advantages, terms(teacher_log_probs=None), 1.0), advantages)


def test_whitening_is_over_all_tokens_with_the_unbiased_variance() -> None:
    parts = [torch.tensor([1.0, 2.0]), torch.tensor([4.0]), torch.zeros(0)]
    mean, variance = 7 / 3, ((1 - 7 / 3) ** 2 + (2 - 7 / 3) ** 2 + (4 - 7 / 3) ** 2) / 2
    expected = [(x - mean) / math.sqrt(variance + 1e-8) for x in (1, 2, 4)]
    assert torch.cat(whiten(parts)).tolist() == pytest.approx(expected, rel=1e-6)
    assert whiten([]) == []
    assert whiten([torch.tensor([5.0])])[0].tolist() == [0.0]


def test_whitening_over_ranks_is_whitening_of_all_their_tokens() -> None:
    """Each rank's sums are added to those of the other, as the process group does."""
    one, two = [torch.tensor([1.0, 5.0])], [torch.tensor([2.0]), torch.tensor([-3.0])]
    together = whiten([*one, *two])
    calls: list[torch.Tensor] = []
    whiten(two, lambda sums: calls.append(sums) or sums)  # type: ignore[func-returns-value]
    count, total = (4.0, 5.0)
    mean = total / count
    squares = sum((x - mean) ** 2 for x in (1, 5, 2, -3))
    answers = iter([torch.tensor([count, total]), torch.tensor([squares])])
    assert torch.equal(whiten(one, lambda sums: next(answers))[0], together[0])
    assert calls[0].tolist() == [2.0, -1.0]


def step_sample(scores: list[float], group: Any = 0, **more: object) -> Sample:
    spans = [[2 * k, 2 * k + 2] for k in range(len(scores))]
    metadata = {"step_wise": {"step_scores": scores, "step_token_spans": spans} | more}
    length = 2 * len(scores)
    return Sample(
        tokens=[1] * (length + 1), response_length=length, group_index=group, reward=9.0, metadata=metadata
    )


def test_steps_are_compared_with_the_same_step_of_their_group() -> None:
    samples = [step_sample([1.0, 5.0]), step_sample([3.0, 5.0]), step_sample([2.0, 5.0, 7.0])]
    found = normalized_spans([spans_of(s, None) for s in samples], [s.group_index for s in samples])
    deviation = math.sqrt(2 / 3) + 1e-6
    assert [spans[0].reward for spans in found] == pytest.approx([-1 / deviation, 1 / deviation, 0.0])
    assert [spans[1].reward for spans in found] == [0.0, 0.0, 0.0]
    assert found[2][2].reward == 7.0


def test_a_step_reward_applies_to_the_tokens_of_its_step() -> None:
    spans = (Span(0, 2, 0, 1.5), Span(3, 5, 1, -1.0))
    assert estimator(args("step_wise"))(terms(spans=spans)).tolist() == [1.5, 0.0, -1.0]


def test_without_steps_a_sample_is_one_step() -> None:
    sample = Sample(tokens=[1] * 6, response_length=5, loss_mask=[0, 1, 0, 1, 0], reward=3.0)
    assert spans_of(sample, None) == (Span(1, 4, 0, 3.0),)


def test_scores_that_include_the_outcome_take_precedence() -> None:
    sample = step_sample([1.0, 1.0], step_scores_with_outcome=[2.0, 4.0], step_indices=[5, 6])
    assert [(span.index, span.reward) for span in spans_of(sample, None)] == [(5, 2.0), (6, 4.0)]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"step_token_spans": [[0, 2]]}, "one of each a step"),
        ({"step_token_spans": [[0, 2], [2, 9]]}, "leaves the response"),
        ({"step_scores": [1.0, float("nan")]}, "finite"),
    ],
)
def test_steps_that_do_not_fit_are_an_error(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        spans_of(step_sample([1.0, 2.0], **changes), None)
