"""Tests the output of actors."""

from __future__ import annotations

import pytest

from slime.errors import CheckpointError
from slime.ray.actor_process import logs_failures
from slime.ray.train_actor import TrainActor


@logs_failures
class Worker:
    def work(self, share: int) -> float:
        return 1 / share

    def load(self) -> None:
        raise CheckpointError("no checkpoint in this folder")


def test_an_actors_failure_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    assert Worker().work(share=2) == 0.5 and not caplog.records
    with pytest.raises(ZeroDivisionError):
        Worker().work(0)
    assert "work failed" in caplog.text and "return 1 / share" in caplog.text


def test_a_self_explanatory_error_has_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(CheckpointError):
        Worker().load()
    assert not caplog.records


def test_trainers_log_their_failures_and_keep_their_concurrency_groups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    actor = TrainActor.__ray_metadata__.modified_class  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        actor.train(object.__new__(actor), 0, [])  # of a trainer that was never loaded
    assert "train failed" in caplog.text
    assert actor.live.__ray_concurrency_group__ == "life"
