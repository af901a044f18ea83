from __future__ import annotations

import logging

import pytest

from openclaw.judge.metrics import JudgeMetrics, NeutralAlarm


def test_the_alarm_is_raised_once_per_window_if_most_scores_are_neutral() -> None:
    alarm = NeutralAlarm(limit=0.5, window=4)
    sounds = [alarm.add(score) for score in (0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0)]
    assert sounds == [None, None, None, 0.75, None, None, None, 1.0, None, None, None, None, None, 0.75]


def test_the_alarm_is_not_raised_at_the_limit() -> None:
    alarm = NeutralAlarm(limit=0.5, window=2)
    assert [alarm.add(score) for score in (0, 1, 0, -1)] == [None] * 4


def test_the_alarm_names_remedies(caplog: pytest.LogCaptureFixture) -> None:
    metrics = JudgeMetrics("rules", neutral_limit=0.5, neutral_window=2)
    for score in (0.0, 0.0):
        metrics.judged(score, [0], 0.1)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    text = record.getMessage()
    assert "100% of the last scores are neutral" in text
    assert "next states carry feedback" in text and "prompt template" in text and "--majority-vote-n" in text


def test_a_snapshot_counts_outcomes_votes_and_latencies() -> None:
    metrics = JudgeMetrics("engine:m")
    metrics.judged(1.0, [1, 1, None], 0.05)
    metrics.judged(-1.0, [-1], 500.0)
    metrics.failed(TimeoutError())
    assert metrics.snapshot() == {
        "judge": "engine:m",
        "outcomes": {"positive": 1, "negative": 1, "failed_TimeoutError": 1},
        "votes": {"positive": 2, "invalid": 1, "negative": 1},
        "hints": {},
        "teacher_failures": {},
        "latency_seconds": {"buckets": {"0.05": 1, "inf": 1}, "sum": 500.05},
        "requests": 0,
        "retries": 0,
        "cache_hits": 0,
    }
