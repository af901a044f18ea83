"""A component that falls behind is reported, with the flag to change."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from openclaw.store import RolloutStore
from openclaw.trainer_hooks.lease import lease_batch
from openclaw.trainer_hooks.next_batch import REPEAT_SECONDS, Backlog, BacklogWatch
from openclaw.types import NewTurn, SampleDraft
from tests.fakes.hook_flags import hook_flags


def test_components_that_keep_up_are_not_reported() -> None:
    assert Backlog(ready=63, answered=63, batch=16).advice() == {}


def test_a_trainer_that_falls_behind_is_reported() -> None:
    advice = Backlog(ready=64, answered=0, batch=16).advice()
    assert list(advice) == ["trainer"]
    assert (
        "64 samples are ready, 4 batches" in advice["trainer"] and "--rollout-batch-size" in advice["trainer"]
    )


def test_a_judge_that_falls_behind_is_reported() -> None:
    advice = Backlog(ready=0, answered=100, batch=16).advice()
    assert list(advice) == ["judge"] and "--num-judge-workers" in advice["judge"]


def test_a_backlog_is_logged_at_its_start_and_at_intervals() -> None:
    watch, behind, well = BacklogWatch(), Backlog(99, 0, 4), Backlog(0, 0, 4)
    said = [len(watch.news(behind, now)) for now in (0.0, 1.0, REPEAT_SECONDS - 1, REPEAT_SECONDS)]
    assert said == [1, 0, 0, 1]
    assert watch.news(well, REPEAT_SECONDS + 1) == []
    assert len(watch.news(behind, REPEAT_SECONDS + 2)) == 1


def test_a_leased_batch_reports_the_samples_waiting_after_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = RolloutStore(tmp_path)
    for number in range(6):
        turn = NewTurn(
            id=f"t{number}", completion_id=f"c{number}", session_id="s", turn_index=number, messages=[],
            response_message={"role": "assistant", "content": "x"}, prompt_ids=[1], completion_ids=[2],
            completion_log_probs=[-0.5], version_spans=[(0, 0, 1)], sampling={"temperature": 1.0},
            finish_reason="stop", transcript_digest=f"d{number}",
        )  # fmt: skip
        store.turns.record(turn)
        assert store.turns.answer(turn.id, [{"role": "user", "content": "thanks"}])
    for turn in store.judgements.claim("w", 6, 60.0):
        store.judgements.finish(turn.id, [], SampleDraft(turn_id=turn.id, reward={"score": 1.0}))
    with caplog.at_level(logging.WARNING, "openclaw.trainer_hooks.next_batch"):
        lease_batch(hook_flags(str(tmp_path), rollout_batch_size=1), 0)
    assert "training falls behind: 5 samples are ready" in caplog.text
    store.close()
