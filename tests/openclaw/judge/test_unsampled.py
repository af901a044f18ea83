"""Greedy turns, and others that are no samples of the policy: hints teach, scores are counted and left out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from openclaw.chat.turn_status import AllTurns
from openclaw.common.unsampled import advice
from openclaw.judge.rules.judge import RulesBackend
from openclaw.judge.turn_judge import JudgeLimits, TurnJudge, taught_alone
from openclaw.methods.cases import draft
from openclaw.methods.method import Method, MethodContext, Needs, asks, hints_of
from openclaw.store import RolloutStore, StoreWriter
from openclaw.trainer_hooks.rows import batch_metrics, sample_dict
from openclaw.types import Drop, Judgement, SampleDraft, Turn, TurnState


class Teachers(MethodContext):
    """Places each hint before the turn's own ids."""

    def candidates(self, turn: Turn, hints: Any) -> list[list[int]]:
        return [[0, *turn.prompt_ids, *turn.completion_ids] for _ in hints]


def hybrid(turn: Turn, judgements: list[Judgement]) -> SampleDraft | Drop:
    return draft(turn, judgements, hints_of(judgements), Teachers(), 1.0, 1.0)


def judged(kind: Any, score: float, hints: list[str] | None = None) -> Judgement:
    return Judgement(kind=kind, score=score, votes=[], judge="test", hints=hints or [])


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (SampleDraft(turn_id="t", reward=0.0, teacher_tokens_candidates=[[1]]), True),
        (SampleDraft(turn_id="t", reward=-1.0), False),
        (SampleDraft(turn_id="t", reward=0.0, teacher_tokens_candidates=[]), False),
        (Drop("not_judged"), False),
    ],
)
def test_an_unsampled_answer_is_kept_only_with_a_hint(outcome: SampleDraft | Drop, kept: bool) -> None:
    made = taught_alone(outcome, [judged("eval", -1.0)], "greedy")
    if kept:
        assert isinstance(made, SampleDraft) and made.metadata == {"unsampled": "greedy", "eval_score": -1.0}
    else:
        assert made == Drop("greedy")


async def test_a_greedy_answer_is_trained_only_by_its_hint(store: RolloutStore, make_turn: Any) -> None:
    writer = StoreWriter(store.database)
    turns = []
    for number, (said, temperature) in enumerate(
        (
            ("No bullet points please.", 0),
            ("No bullet points please.", 0.6),
            ("That is wrong.", 0),
            ("Thanks!", 0),
        )
    ):
        turn = store.turns.record(
            make_turn(
                session_id=f"s{number}", sampling={"temperature": temperature}, state=TurnState.CAPTURED
            )
        )
        assert store.turns.answer(turn.id, [{"role": "user", "content": said}])
        turns.append(turn)
    method = Method.of(
        asks(lambda _: Needs(hint=True))(lambda turn, judgements, _context: hybrid(turn, judgements))
    )
    judge = TurnJudge(store, writer, RulesBackend(), method, JudgeLimits())
    for turn in store.judgements.claim("w", 9, 60):
        await judge.judge(turn)
    writer.close()
    by_turn = {record.turn.id: record for record in store.samples.lease(0, 9)}
    taught, sampled = by_turn[turns[0].id], by_turn[turns[1].id]
    assert taught.reward == {"score": 0.0} and sampled.reward == {"score": -1.0}
    assert len(taught.teacher_tokens_candidates or []) == 1 == len(sampled.teacher_tokens_candidates or [])
    assert taught.metadata == {"case": "opd", "unsampled": "greedy", "eval_score": -1.0}
    rows = [sample_dict(record, 0) for record in (taught, sampled)]
    assert [row["temperature"] for row in rows] == [1.0, 0.6]
    assert batch_metrics(rows)["rollout/samples_greedy"] == 1
    assert store.status.counts()["dropped"] == {"greedy": 2}


def test_mostly_greedy_turns_are_reported_once(store: RolloutStore, make_turn: Any) -> None:
    assert advice([None, "greedy", "greedy"]) is None
    assert advice(["greedy"] * 3 + [None] * 3) is None
    for number in range(6):
        store.turns.record(make_turn(sampling={"temperature": 0.0 if number else 0.6}))
    watched = AllTurns(lambda: [asdict(one) for one in store.status.recent(100)])
    told = [line for _ in range(2) for line in watched.news() if "--min-temperature" in line]
    assert len(told) == 1 and told[0].startswith("5 of the last 6 main turns")
