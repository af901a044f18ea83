"""Tests a distribution whose rows are divided among ranks, from the view of one rank."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from slime.losses import ChunkedDistribution, DenseDistribution
from slime.training.core import shared_rows
from slime.training.core.shared_rows import OwnRows, SharedRows
from slime.training.core.step import _keep_normaliser

GROUP: Any = SimpleNamespace(size=lambda: 3)
NUMBERS = torch.tensor([1, 4])


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_rows.dist, "all_reduce", lambda *_, **__: None)


def test_a_gradient_reaches_only_own_rows_multiplied_by_the_number_of_ranks() -> None:
    mine = torch.ones(2, 3, requires_grad=True)
    whole = OwnRows(NUMBERS, 5, GROUP).share(mine)
    assert whole.sum(-1).tolist() == [0, 3, 0, 0, 3]
    weights = torch.arange(15.0).view(5, 3)
    (whole * weights).sum().backward()
    assert mine.grad is not None and torch.equal(mine.grad, 3 * weights[NUMBERS])


def test_a_rank_without_a_row_takes_part() -> None:
    rows = OwnRows(NUMBERS[:0], 5, GROUP)
    hidden = torch.ones(0, 4, requires_grad=True)

    def of(given: Tensor) -> ChunkedDistribution:
        return ChunkedDistribution(given, lambda x: x, torch.ones(len(given)), 2)

    dist = SharedRows(of(hidden), rows, hidden, of)
    assert [tuple(x.shape) for x in dist.topk(2)] == [(5, 2), (5, 2)]
    (dist.log_probs(torch.zeros(5, dtype=torch.long)).sum() + dist.entropy().sum()).backward()
    assert hidden.grad is not None and hidden.grad.shape == (0, 4)


def test_chunks_are_computed_once_for_loss_metrics_and_teacher() -> None:
    projected: list[int] = []

    def project(given: Tensor) -> Tensor:
        projected.append(len(given))
        return given

    def of(given: Tensor) -> ChunkedDistribution:
        return ChunkedDistribution(given, project, torch.ones(len(given)), 2)

    hidden = torch.randn(2, 4, requires_grad=True)
    dist = SharedRows(of(hidden), OwnRows(NUMBERS, 5, GROUP), hidden, of)
    ids = torch.tensor([0, 1, 2, 3, 0])
    _keep_normaliser(dist)
    found = dist.log_probs(ids)
    with torch.no_grad():
        again = dist.log_probs(ids)
    assert projected == [2] and torch.equal(found, again)
    assert_close(found[NUMBERS], DenseDistribution(hidden).log_probs(ids[NUMBERS]))
