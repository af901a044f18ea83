"""One turn at a time: what a judge or a method does wrong costs that turn, counted, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlalchemy import event

from openclaw.common.messages import Picture
from openclaw.errors import StoreUnavailable
from openclaw.judge.backends.base import JudgeBackend
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import RulesBackend
from openclaw.judge.turn_judge import JudgeLimits, TurnJudge
from openclaw.judge.worker import JudgeWorker
from openclaw.store import RolloutStore, StoreWriter
from openclaw.types import (
    Drop,
    Judgement,
    NewTurn,
    PlacedPicture,
    SampleDraft,
    SampleState,
    Turn,
    TurnState,
    Vote,
)

Answer = Callable[[str], Turn]


def binary(turn: Turn, judgements: list[Judgement]) -> SampleDraft | Drop:
    score = judgements[0].score
    return SampleDraft(turn_id=turn.id, reward={"score": score}) if score else Drop("neutral_score")


class FakeBackend:
    """Votes by the last word of the next message: a number votes it, anything else misbehaves as it says."""

    name = "fake"
    prompt_name = "fake-v1"

    async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        word = question.next_text.split()[-1]
        if word == "raise":
            raise RuntimeError("the judge is on fire")
        if word == "hang":
            await asyncio.sleep(60)
        if word == "nonsense":
            return [Vote(score=None, text="purple")] * m
        return [Vote(score=int(word))] * m


@pytest.fixture
async def writer(store: RolloutStore) -> AsyncIterator[StoreWriter]:
    writer = StoreWriter(store.database)
    yield writer
    await asyncio.to_thread(writer.close)


async def _run_until(
    store: RolloutStore,
    writer: StoreWriter,
    judged: int,
    backend: JudgeBackend | None = None,
    method: Callable[[Turn, list[Judgement]], SampleDraft | Drop] = binary,
    limits: JudgeLimits | None = None,
) -> None:
    limits = limits or JudgeLimits(votes=3, timeout=0.2, attempts=2)
    judge = TurnJudge(store, writer, backend or FakeBackend(), method, limits)
    worker = JudgeWorker("w", store, judge, claim_seconds=10.0, concurrency=4)
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    async with asyncio.timeout(20):
        while store.status.counts()["turns"].get("judged", 0) < judged:
            await asyncio.sleep(0.02)
    stop.set()
    await running


async def test_a_judged_turn_has_its_judgement_and_its_sample(
    store: RolloutStore, writer: StoreWriter, answer: Answer
) -> None:
    turn = answer("No bullet points please.")
    await _run_until(store, writer, 1, backend=RulesBackend())
    (judgement,) = store.judgements.of_turn(turn.id)
    assert (judgement.kind, judgement.score, judgement.judge, judgement.prompt) == (
        "eval",
        -1.0,
        "rules",
        "rules-v6",
    )
    assert [vote.score for vote in judgement.votes] == [-1, -1, -1]
    sample = store.samples.of_turn(turn.id)
    assert sample is not None and sample.state is SampleState.READY and sample.reward == {"score": -1.0}


async def test_turns_with_an_environments_reward_are_not_judged_by_rules(
    store: RolloutStore, writer: StoreWriter, answer: Answer, make_turn: Callable[..., NewTurn]
) -> None:
    turn = store.turns.record(make_turn(completion_id="e", session_id="episode", source="environment"))
    store.turns.answer(turn.id, [{"role": "user", "content": "No, that is wrong."}])
    answer("No bullet points please.")
    await _run_until(store, writer, 1, backend=RulesBackend())
    assert store.judgements.of_turn(turn.id) == []
    store.feedback.reward_session("episode", 1.0)
    await _run_until(store, writer, 2, backend=RulesBackend())
    assert [(one.judge, one.kind, one.score) for one in store.judgements.of_turn(turn.id)] == [
        ("user", "eval", 1.0)
    ]


async def test_a_method_may_drop_a_turn_for_its_own_reason(
    store: RolloutStore, writer: StoreWriter, answer: Answer
) -> None:
    answer("score 0")
    await _run_until(store, writer, 1)
    assert store.status.counts()["dropped"] == {"neutral_score": 1}


@pytest.mark.parametrize("fault", ["raise", "hang", "nonsense"])
async def test_a_failing_turn_is_dropped_after_the_last_attempt_and_blocks_no_other(
    store: RolloutStore, writer: StoreWriter, answer: Answer, fault: str
) -> None:
    bad = answer(f"please {fault}")
    for _ in range(6):
        answer("score 1")
    await _run_until(store, writer, 7)
    assert store.status.counts()["samples"] == {"ready": 6, "dropped": 1}
    assert store.status.counts()["dropped"] == {"judge_error": 1}
    stored = store.turns.get(bad.id)
    assert stored is not None and stored.judge_attempts == 2


async def test_hanging_turns_block_the_worker_only_until_the_time_out(
    store: RolloutStore, writer: StoreWriter, answer: Answer
) -> None:
    for _ in range(4):
        answer("please hang")
    answer("score 1")
    await _run_until(store, writer, 5)
    assert store.status.counts()["dropped"] == {"judge_error": 4}
    assert store.samples.ready_count() == 1


@pytest.mark.parametrize("result", [None, "raise", "wrong mask"])
async def test_an_exception_of_a_method_loses_only_its_turn(
    store: RolloutStore, writer: StoreWriter, answer: Answer, result: str | None
) -> None:
    def method(turn: Turn, judgements: list[Judgement]) -> SampleDraft | Drop:
        if judgements[0].score > 0:
            return binary(turn, judgements)
        if result == "raise":
            raise KeyError("method")
        if result == "wrong mask":
            return SampleDraft(turn_id=turn.id, reward=1.0, loss_mask=[1, 1, 1, 1, 1])
        return None  # type: ignore[return-value]

    failed = answer("score -1")
    answer("score 1")
    await _run_until(store, writer, 2, method=method)
    assert store.status.counts()["dropped"] == {"method_error": 1}
    assert store.samples.ready_count() == 1
    assert len(store.judgements.of_turn(failed.id)) == 1


async def test_a_turn_that_killed_several_workers_is_dropped_without_a_judgement(
    store: RolloutStore, writer: StoreWriter, answer: Answer
) -> None:
    answer("please hang")
    for _ in range(2):
        store.judgements.claim("dead", 1, claim_seconds=0.0)
        await asyncio.sleep(0.01)
    await _run_until(store, writer, 1)
    assert store.status.counts()["dropped"] == {"judge_error": 1}


async def test_a_stopped_worker_finishes_its_current_turns(
    store: RolloutStore, writer: StoreWriter, answer: Answer
) -> None:
    begun = asyncio.Event()

    class Slow(FakeBackend):
        async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
            begun.set()
            await asyncio.sleep(0.3)
            return [Vote(score=1)]

    turn = answer("anything")
    judge = TurnJudge(store, writer, Slow(), binary, JudgeLimits())
    worker = JudgeWorker("w", store, judge, claim_seconds=10.0, concurrency=4)
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    await asyncio.wait_for(begun.wait(), 60)
    stop.set()
    await running
    stored = store.turns.get(turn.id)
    assert stored is not None and stored.state is TurnState.JUDGED


async def test_a_deleted_turn_is_no_longer_judged(
    store: RolloutStore, writer: StoreWriter, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw.judge.worker.LOOK_SECONDS", 0.02)
    begun: list[str] = []
    stopped = asyncio.Event()

    class Slow(FakeBackend):
        async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
            begun.append("voting")
            try:
                await asyncio.sleep(0 if len(begun) > 1 else 30)
            finally:
                stopped.set()
            return [Vote(score=1)]

    deleted = answer("anything")
    judge = TurnJudge(store, writer, Slow(), binary, JudgeLimits())
    stop = asyncio.Event()
    running = asyncio.create_task(JudgeWorker("w", store, judge, claim_seconds=60.0, concurrency=1).run(stop))
    async with asyncio.timeout(20):
        while not begun:
            await asyncio.sleep(0.01)
        store.deletion.delete_session(deleted.session_id)
        await stopped.wait()
        other = answer("anything else")
        while store.status.counts()["turns"].get("judged", 0) < 1:
            await asyncio.sleep(0.02)
        stop.set()
        await running
    stored = store.turns.get(other.id)
    assert stored is not None and stored.state is TurnState.JUDGED, "the worker continues"


async def test_a_turn_with_pictures_is_dropped_without_asking_a_teacher_on_an_engine(
    store: RolloutStore, writer: StoreWriter, make_turn: Callable[..., NewTurn]
) -> None:
    class Teacher:
        async def taught(self, turn: Turn, draft: SampleDraft) -> SampleDraft:
            raise AssertionError("it would read the prompt without its pictures")

    picture = Picture(b"cat", "image/png")
    name = hashlib.sha256(picture.data).hexdigest()
    turn = store.turns.record(make_turn(pictures=[PlacedPicture(0, 1, 2, 2, name)]), {name: picture})
    store.turns.answer(turn.id, [{"role": "user", "content": "1"}])
    [claimed] = store.judgements.claim("w", 1, 60)
    judge = TurnJudge(store, writer, FakeBackend(), binary, JudgeLimits(), teacher=Teacher())
    await judge.judge(claimed)
    assert store.status.counts()["dropped"] == {"pictures": 1}


async def test_a_temporarily_locked_store_loses_no_turn(
    store: RolloutStore, tmp_path: Path, writer: StoreWriter, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = answer("score 1")
    (claimed,) = store.judgements.claim("w", 1, claim_seconds=0.0)
    judge = TurnJudge(store, writer, FakeBackend(), binary, JudgeLimits())
    lock = sqlite3.connect(tmp_path / "buffer.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    event.listen(
        store.database.engine,
        "checkout",
        lambda connection, *_: connection.execute("PRAGMA busy_timeout = 50"),
    )
    with pytest.raises(StoreUnavailable):
        await judge.judge(claimed)
    lock.execute("ROLLBACK")
    await _run_until(store, writer, 1)
    sample = store.samples.of_turn(turn.id)
    assert sample is not None and sample.state is SampleState.READY
