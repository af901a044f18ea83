"""Tests that a rollout manager lost at any moment is replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from slime.ray import rollouts
from slime.ray.waiting import WaitTimeout


def test_a_rollout_manager_that_dies_while_writing_its_state_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its batch had arrived, so that no time limit of the rollout applies any more."""
    replaced_after: list[int] = []

    def gather(
        references: Sequence[object], what: str, limit: float = 0.0, look: Callable[[], None] = lambda: None
    ) -> list[Any]:
        if "state" in what and not replaced_after:
            look()
            pytest.fail("nobody looked for a sign of life")
        return [{"rollout/reward_mean": 1.0}]

    def gone() -> None:
        raise WaitTimeout("the rollout manager did not respond for 5 s")

    monkeypatch.setattr(rollouts, "gather", gather)
    own: Any = object.__new__(rollouts.Rollouts)
    own.args = SimpleNamespace(rollout_timeout=0.0, save_timeout=0.0)
    own.has_data = own.repeats_samples = True
    own.delivered, own.batches = 3, 4
    own.manager = SimpleNamespace(save=SimpleNamespace(remote=lambda rollout_id: "written"))
    own.heartbeat = SimpleNamespace(check=gone, answer=None)
    own.budget = SimpleNamespace(take=lambda lost: None)
    own.restart = replaced_after.append
    asked: list[object] = []
    batch: Any = SimpleNamespace(rollout_id=4, metrics="metrics", ask=asked.append)
    metrics = own.wait(batch, look=lambda: None)
    assert metrics["rollout/reward_mean"] == 1.0 and own.delivered == 4
    assert replaced_after == [3] and len(asked) == 1
