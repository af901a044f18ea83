"""A judge endpoint in trouble: its turns wait or are dropped and counted; the others are judged meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from openclaw.judge import turn_judge
from openclaw.judge.backends import http
from openclaw.judge.backends.base import make_backend
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.settings import JudgeSettings
from openclaw.judge.turn_judge import JudgeLimits, TurnJudge
from openclaw.judge.worker import JudgeWorker
from openclaw.store import RolloutStore, StoreWriter
from openclaw.types import Drop, Judgement, SampleDraft, Turn

if TYPE_CHECKING:
    from tests.openclaw.judge.conftest import FakeJudge


Answer = Callable[[str], Turn]


def binary(turn: Turn, judgements: list[Judgement]) -> SampleDraft | Drop:
    return SampleDraft(turn_id=turn.id, reward={"score": judgements[0].score})


class Running:
    """A worker at work in this event loop."""

    def __init__(self, store: RolloutStore, settings: JudgeSettings, attempts: int) -> None:
        self.store = store
        self.metrics = JudgeMetrics("openai")
        self.backend = make_backend(settings, self.metrics)
        self.writer = StoreWriter(store.database)
        limits = JudgeLimits(timeout=settings.judge_timeout, attempts=attempts)
        judge = TurnJudge(store, self.writer, self.backend, binary, limits, self.metrics)
        self._worker = JudgeWorker("w", store, judge, claim_seconds=10.0, concurrency=4)
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._worker.run(self._stop))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(15):
            while not condition():
                await asyncio.sleep(0.02)

    async def until_judged(self, count: int) -> None:
        await self.until(lambda: self.store.status.counts()["turns"].get("judged", 0) >= count)

    async def close(self) -> None:
        self._stop.set()
        await self._task
        await self.backend.close()
        await asyncio.to_thread(self.writer.close)


Start = Callable[..., Running]


@pytest.fixture
async def start(
    store: RolloutStore, judge_server: FakeJudge, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Start]:
    monkeypatch.setattr(http, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(turn_judge, "_FIRST_RETURN_SECONDS", 0.2)
    started: list[Running] = []

    def start(attempts: int = 2, **settings: Any) -> Running:
        own = {"judge_url": judge_server.url, "judge_model": "m", "judge_timeout": 1.0, **settings}
        started.append(Running(store, JudgeSettings(judge_backend="openai", **own), attempts))
        return started[-1]

    yield start
    for running in started:
        await running.close()


@pytest.mark.parametrize(
    "trouble", ["!hang", "!close", "!half", "!garbage", "purple", 503, 400, 401, (200, "", b"[")]
)
async def test_an_error_with_one_turn_drops_it_and_blocks_no_other(
    store: RolloutStore, judge_server: FakeJudge, answer: Answer, start: Start, trouble: object
) -> None:
    judge_server.script = [lambda body: trouble if "trouble" in str(body) else r"\boxed{1}"]
    bad = answer("trouble")
    for n in range(6):
        answer(f"fine {n}")
    running = start(judge_request_timeout=0.3)
    await running.until_judged(6)
    await running.until_judged(7)
    assert store.status.counts()["samples"] == {"ready": 6, "dropped": 1}
    assert store.status.counts()["dropped"] == {"judge_error": 1}
    stored = store.turns.get(bad.id)
    assert stored is not None and stored.judge_attempts == 2
    outcomes = running.metrics.snapshot()["outcomes"]
    assert outcomes.pop("positive") == 6
    assert sum(outcomes.values()) in (2, 3)  # before the judge had answered anybody, a try is not counted


async def test_a_temporarily_unreachable_judge_delays_turns_and_drops_none(
    store: RolloutStore, judge_server: FakeJudge, answer: Answer, start: Start
) -> None:
    judge_server.script = [503]
    for n in range(5):
        answer(f"turn {n}")
    running = start(attempts=5)
    await running.until(lambda: running.metrics.snapshot()["outcomes"].get("failed_JudgeUnavailable", 0) >= 5)
    judge_server.script = [r"\boxed{-1}"]
    await running.until_judged(5)
    assert store.status.counts()["samples"] == {"ready": 5}


@pytest.mark.parametrize("status", [400, 401, 503])
async def test_a_judges_error_that_quotes_the_conversation_is_not_reported(
    store: RolloutStore,
    judge_server: FakeJudge,
    answer: Answer,
    start: Start,
    caplog: pytest.LogCaptureFixture,
    status: int,
) -> None:
    """Every client sees the reasons in /status."""
    judge_server.script = [
        lambda body: (status, "", orjson.dumps({"error": {"message": f"invalid input: {body['messages']}"}}))
    ]
    answer("my word is bluewhale")
    running = start(attempts=5)
    await running.until(lambda: bool(store.status.counts()["judge_failures"]))
    (reason,) = store.status.counts()["judge_failures"]
    assert reason.endswith(f"answered status {status}")
    assert "bluewhale" not in caplog.text and "invalid input" not in caplog.text


async def test_a_judges_error_is_reported_until_it_succeeds(
    store: RolloutStore, judge_server: FakeJudge, answer: Answer, start: Start
) -> None:
    judge_server.script = [401]
    turn = answer("turn")
    running = start(attempts=5)
    await running.until(lambda: bool(store.status.counts()["judge_failures"]))
    (reason,) = store.status.counts()["judge_failures"]
    assert "401" in reason
    status = store.status.of_completion(turn.completion_id)
    assert status is not None and status.state_reason == reason
    judge_server.script = [r"\boxed{1}"]
    await running.until_judged(1)
    assert store.status.counts()["judge_failures"] == {}


async def test_an_unreachable_judge_loses_no_turn_and_gets_few_requests(
    store: RolloutStore,
    judge_server: FakeJudge,
    answer: Answer,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_judge, "_DOWN_SECONDS", 0.3)
    judge_server.script = [r"\boxed{1}"]
    answer("turn")
    running = start(attempts=1, judge_retries=0)
    await running.until_judged(1)
    await asyncio.sleep(0.35)
    judge_server.script, asked = [503], len(judge_server.bodies)
    turns = [answer(f"turn {n}") for n in range(40)]
    await asyncio.sleep(1.0)
    assert 4 <= len(judge_server.bodies) - asked <= 40
    assert max(store.turns.get(turn.id).judge_attempts for turn in turns) <= 1  # type: ignore[union-attr]
    judge_server.script = [r"\boxed{-1}"]
    await running.until_judged(41)
    assert store.status.counts()["samples"] == {"ready": 41}


async def test_a_slow_judge_loses_no_turn(
    store: RolloutStore, judge_server: FakeJudge, answer: Answer, start: Start
) -> None:
    judge_server.delay = 0.2
    for n in range(8):
        answer(f"turn {n}")
    await start().until_judged(8)
    assert store.status.counts()["samples"] == {"ready": 8}


async def test_a_judgement_records_the_model_and_the_prompts_hash(
    store: RolloutStore, answer: Answer, start: Start
) -> None:
    turn = answer("turn")
    await start().until_judged(1)
    (judgement,) = store.judgements.of_turn(turn.id)
    assert judgement.judge == "openai:m" and judgement.prompt.startswith("eval@") and judgement.latency > 0
