"""From an answered turn to a stored sample with its teachers, or to a counted drop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from openclaw.errors import StoreError
from openclaw.judge.backends.base import JudgeBackend
from openclaw.judge.backends.http import JudgeUnavailable
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import RulesBackend
from openclaw.judge.teacher.log_probs import TeacherError
from openclaw.judge.turn_judge import JudgeLimits, TeacherOnEngine, TurnJudge
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.methods.method import MethodContext
from openclaw.store import RolloutStore, StoreWriter
from openclaw.store.files.exporting import export_lines
from openclaw.store.files.importing import import_lines
from openclaw.trainer_hooks.rows import batch_metrics, sample_dict
from openclaw.types import SampleDraft, Turn, TurnState, Vote
from openclaw_combine import combine
from openclaw_opd import opd
from slime.types import Sample

Answered = Callable[..., Turn]
WISH = "Please write it in natural sentences."


@pytest.fixture
async def writer(store: RolloutStore) -> AsyncIterator[StoreWriter]:
    writer = StoreWriter(store.database)
    yield writer
    await asyncio.to_thread(writer.close)


class Backend:
    """Returns given votes, and records its calls with their times."""

    name, prompt_name, hint_prompt_name = "fake", "eval-v1", "hint-v1"

    def __init__(self, score: int | None = -1, hints: tuple[str, ...] = (WISH,)) -> None:
        self._score, self._hints = score, hints
        self.asked: list[str] = []
        self.together = 0
        self._open = 0

    async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        await self._ask("eval")
        return [Vote(score=self._score)] * m

    async def hint_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        await self._ask("hint")
        return [Vote(score=1, hint=hint) for hint in self._hints] or [Vote(score=-1)]

    async def close(self) -> None:
        return None

    async def _ask(self, kind: str) -> None:
        self.asked.append(kind)
        self._open += 1
        self.together = max(self.together, self._open)
        await asyncio.sleep(0.02)
        self._open -= 1


class FailingTeacher:
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def taught(self, turn: Turn, draft: SampleDraft) -> SampleDraft:
        raise self._error


def judge(
    store: RolloutStore, writer: StoreWriter, prompts: HintedPrompts, backend: JudgeBackend,
    method: Callable[..., object] = combine.sample_from_judged_turn, teacher: TeacherOnEngine | None = None,
    metrics: JudgeMetrics | None = None,
) -> TurnJudge:  # fmt: skip
    context = MethodContext(prompts)
    return TurnJudge(store, writer, backend, method, JudgeLimits(attempts=2), metrics, context, teacher)


async def test_a_complaint_becomes_a_trainable_sample(
    store: RolloutStore, writer: StoreWriter, prompts: HintedPrompts, answered: Answered
) -> None:
    turn = answered(WISH)
    await judge(store, writer, prompts, RulesBackend()).judge(turn)
    record = store.samples.of_turn(turn.id)
    assert record is not None
    row = sample_dict(record, rollout_id=0)
    sample = Sample.from_dict(row)
    assert sample.teacher_tokens_candidates == [prompts.candidate(turn, WISH)]
    assert sample.get_reward_value("score") == -1.0
    assert batch_metrics([row]) == {
        "rollout/prm_eval_score": -1.0,
        "rollout/hints": 1.0,
        "rollout/samples_opd_rl": 1.0,
    }
    assert [one.kind for one in store.judgements.of_turn(turn.id)] == ["eval", "hint"]


async def test_comments_on_a_liked_turn_become_neither_hint_nor_preference(
    store: RolloutStore, writer: StoreWriter, prompts: HintedPrompts, answered: Answered
) -> None:
    judged, thumbs_up = answered("Great, just what I wanted!"), answered("x")
    store.feedback.record(completion_id=thumbs_up.completion_id, score=1.0, text="I love this form!")
    for turn in (judged, thumbs_up):
        await judge(store, writer, prompts, Backend(score=1)).judge(turn)
        record = store.samples.of_turn(turn.id)
        assert record is not None and record.teacher_tokens_candidates == []
        assert [one.hints for one in store.judgements.of_turn(turn.id)] == [[], []]
    assert store.memory.asked_for([judged.id, thumbs_up.id], 4, 2) == {}


async def test_score_and_hints_are_requested_concurrently_and_only_if_needed(
    store: RolloutStore, writer: StoreWriter, prompts: HintedPrompts, answered: Answered
) -> None:
    backend = Backend()
    await judge(store, writer, prompts, backend).judge(answered("x"))
    assert sorted(backend.asked) == ["eval", "hint"] and backend.together == 2
    binary = Backend()
    method = lambda turn, judgements: SampleDraft(turn_id=turn.id, reward=1.0)  # noqa: E731
    await judge(store, writer, prompts, binary, method).judge(answered("x"))
    assert binary.asked == ["eval"]


async def test_the_users_text_is_the_hint_and_the_judge_only_scores(
    store: RolloutStore, writer: StoreWriter, prompts: HintedPrompts, answered: Answered
) -> None:
    backend, turn = Backend(), answered("x")
    store.feedback.record(completion_id=turn.completion_id, text="shorter")
    await judge(store, writer, prompts, backend).judge(turn)
    assert backend.asked == ["eval"]
    record = store.samples.of_turn(turn.id)
    assert record is not None
    assert record.teacher_tokens_candidates == [prompts.candidate(turn, "shorter")]


async def test_a_long_user_text_is_not_a_hint(
    store: RolloutStore, writer: StoreWriter, prompts: HintedPrompts, answered: Answered
) -> None:
    turn = answered("x")
    store.feedback.record(completion_id=turn.completion_id, text="word " * 5000)
    await judge(store, writer, prompts, Backend(), opd.sample_from_judged_turn).judge(turn)
    assert store.status.counts()["dropped"] == {"no_hint": 1}


async def test_turns_without_hint_or_signal_are_dropped_and_counted(
    store: RolloutStore, writer: StoreWriter, prompts: HintedPrompts, answered: Answered
) -> None:
    await judge(store, writer, prompts, Backend(1, ()), opd.sample_from_judged_turn).judge(answered("x"))
    await judge(store, writer, prompts, Backend(0, ())).judge(answered("x"))
    await judge(store, writer, prompts, Backend(0, ("z" * 5000,))).judge(answered("x"))
    assert store.status.counts()["dropped"] == {"no_hint": 1, "no_signal": 2}


async def test_an_invalid_teacher_answer_drops_and_counts_the_turn(
    store: RolloutStore, writer: StoreWriter, prompts: HintedPrompts, answered: Answered
) -> None:
    metrics = JudgeMetrics("x")
    broken = FailingTeacher(TeacherError("nonsense"))
    await judge(store, writer, prompts, Backend(), teacher=broken, metrics=metrics).judge(answered("x"))
    assert store.status.counts()["dropped"] == {"teacher_failed": 1}
    assert metrics.snapshot()["teacher_failures"] == {"TeacherError": 1}


async def test_an_unavailable_teacher_is_awaited_and_drops_no_turn(
    store: RolloutStore, writer: StoreWriter, prompts: HintedPrompts, answered: Answered
) -> None:
    away = judge(store, writer, prompts, Backend(), teacher=FailingTeacher(JudgeUnavailable("down")))
    turn = answered("x")
    await away.judge(turn)
    stored = store.turns.get(turn.id)
    assert stored is not None and stored.state is TurnState.ANSWERED
    store.judgements.release_claim(turn.id)
    (again,) = store.judgements.claim("w", 1, 60.0)
    assert again.judge_attempts == turn.judge_attempts
    await away.judge(again)
    stored = store.turns.get(turn.id)
    assert stored is not None and stored.state is TurnState.ANSWERED
    assert store.status.counts()["dropped"] == {}


async def test_a_teachers_log_probs_survive_the_store_and_an_import(
    store: RolloutStore, writer: StoreWriter, prompts: HintedPrompts, answered: Answered, tmp_path: Path
) -> None:
    turn = answered("x")
    size = len(turn.completion_ids)
    draft = SampleDraft(
        turn_id=turn.id, reward=0.0, teacher_log_probs=[-1 / 3] * size,
        teacher_topk_log_probs=[[-0.1, -2.5]] * size, teacher_topk_indices=[[1, 2]] * size,
    )  # fmt: skip
    store.judgements.finish(turn.id, [], draft)
    file = tmp_path / "store.jsonl"
    file.write_bytes(b"".join(export_lines(store)))
    with closing(RolloutStore(tmp_path / "other")) as other:
        import_lines(other, file)
        for one in (store, other):
            record = one.samples.of_turn(turn.id)
            assert record is not None and record.teacher_fields() == draft.teacher_fields()
    assert json.loads(file.read_text().splitlines()[-1])["sample"]["teacher"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"teacher_tokens_candidates": [[1, 2, 3]]},
        {"teacher_log_probs": [-1.0]},
        {"teacher_topk_log_probs": None, "teacher_topk_indices": [[1]] * 99},
    ],
)
def test_teacher_values_that_do_not_match_the_turn_are_rejected(
    store: RolloutStore, answered: Answered, wrong: dict[str, object]
) -> None:
    turn = answered("x")
    with pytest.raises(StoreError, match="teacher"):
        store.judgements.finish(turn.id, [], SampleDraft(turn_id=turn.id, reward=1.0, **wrong))  # type: ignore[arg-type]
