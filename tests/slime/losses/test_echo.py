"""Tests observations as targets: rows of a distribution, and their cross-entropy."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from slime.errors import DataError
from slime.losses import ChunkedDistribution, DenseDistribution, Rows, echo_loss, weighted_sum
from slime.types import Sample

LOGITS = torch.randn(7, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def whole(chunked: bool) -> Any:
    if not chunked:
        return DenseDistribution(LOGITS)
    return ChunkedDistribution(LOGITS, lambda rows: rows, torch.ones(7, dtype=torch.float64), 3)


@pytest.mark.parametrize("chunked", [False, True])
def test_rows_of_a_distribution_equal_a_distribution_of_these_rows(chunked: bool) -> None:
    part, alone = Rows(whole(chunked), 7, 2, 4), DenseDistribution(LOGITS[2:6])
    for ids in (torch.tensor([3, 0, 10, 5]), torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8]])):
        assert torch.allclose(part.log_probs(ids), alone.log_probs(ids))
    assert torch.allclose(part.logsumexp(), alone.logsumexp())
    assert torch.allclose(part.entropy(), alone.entropy())
    assert all(torch.allclose(a, b) for a, b in zip(part.topk(3), alone.topk(3), strict=True))


def test_the_echo_loss_is_the_cross_entropy_of_the_next_message() -> None:
    logits, said = LOGITS.clone().requires_grad_(), torch.tensor([1, 4, 9, 0, 3, 3, 7])
    found = echo_loss(DenseDistribution(logits), said, weighted_sum(torch.full((7,), 0.5), 2.0))
    slow = [-0.25 * LOGITS[row].log_softmax(-1)[token] for row, token in enumerate(said)]
    assert found.loss.item() == pytest.approx(sum(map(float, slow)))
    assert found.metrics["echo_loss"] == found.loss
    found.loss.backward()
    assert logits.grad is not None and bool((logits.grad[torch.arange(7), said] < 0).all()), (
        "they become likelier"
    )


def test_tokens_of_an_environment_are_observed_and_those_of_the_model_are_not() -> None:
    sample = Sample(tokens=[1, 2])
    sample.append_response_tokens([3, 4], [-0.1, -0.2])
    sample.append_response_tokens([5, 6, 7], trainable=False)
    sample.append_response_tokens([8], [-0.3])
    assert sample.loss_mask == [1, 1, 0, 0, 0, 1] and sample.observed == [0, 0, 1, 1, 1, 0]
    sample.validate()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"observed": [1, 0, 0]}, "only where loss_mask is 0"),
        ({"observed": [0, 0, 0], "next_tokens": [4]}, "3 entries for 4"),
        ({"observed": [0, 0, 0, 2], "next_tokens": [4]}, "only where loss_mask is 0"),
    ],
)
def test_observed_tokens_must_match_the_response(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        Sample(tokens=[1, 2, 3, 4], response_length=3, **fields)
