"""Tests the event loop of rollouts: a blocking function is named, and does not block the run for ever."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from typing import Any

import pytest

from slime.errors import ConfigError
from slime.gate import interruptible
from slime.rollout import event_loop


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "LOOK", 0.05)
    monkeypatch.setattr(event_loop, "SLOW", 0.1)


async def forgets_to_await(seconds: float) -> int:
    time.sleep(seconds)  # noqa: ASYNC251 (the very mistake)
    return 5


async def waits() -> int:
    await asyncio.sleep(0.5)
    return 6


async def runs_out_of_time() -> None:
    await asyncio.wait_for(asyncio.sleep(5), 0.1)


def test_a_blocking_async_function_is_reported_and_ends_the_wait() -> None:
    with pytest.raises(
        ConfigError,
        match=r"has blocked the rollout.s event loop .*test_event_loop.py:\d+ \(forgets_to_await\)",
    ):
        event_loop.run(forgets_to_await(1.5), patience=0.3)
    assert event_loop.run(waits(), patience=10.0) == 6  # the loop itself still works


def test_a_temporarily_blocking_function_is_reported_and_continues(caplog: pytest.LogCaptureFixture) -> None:
    assert event_loop.run(forgets_to_await(0.6), patience=30.0) == 5
    [output] = [record.message for record in caplog.records]
    assert "(forgets_to_await) has blocked the event loop of all rollouts" in output


def test_waiting_is_not_blocking_and_a_timeout_of_the_work_is_passed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert event_loop.run(waits(), patience=0.2) == 6
    with pytest.raises(TimeoutError):
        event_loop.run(runs_out_of_time(), patience=5.0)
    assert not caplog.records


class ReadyTooLate(Future[int]):
    """An awaitable that becomes done between the end of a wait and the next check."""

    def result(self, timeout: float | None = None) -> int:
        if timeout is not None and not self.done():
            self.set_result(7)
            raise TimeoutError
        return super().result(timeout)


def test_a_result_just_after_the_wait_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(work: Any, loop: object) -> ReadyTooLate:
        work.close()
        return ReadyTooLate()

    monkeypatch.setattr(event_loop.asyncio, "run_coroutine_threadsafe", started)
    monkeypatch.setattr(event_loop, "Watch", lambda loop, patience: None)
    assert event_loop.run(waits()) == 7
    monkeypatch.setattr(interruptible, "in_thread", lambda ask, name: ReadyTooLate())
    assert interruptible.interruptible(lambda: 0, lambda: None, lambda: None) == 7
