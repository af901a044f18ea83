"""A person's feedback on a turn overrides a judge's score."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openclaw.errors import StoreError
from openclaw.store import RolloutStore
from openclaw.types import Drop, Judgement, NewTurn, SampleDraft, SampleState, Turn, TurnState, Vote

MakeTurn = Callable[..., NewTurn]
MakeSample = Callable[..., Turn]
GUESS = Judgement(kind="eval", score=-1.0, votes=[Vote(score=-1)], judge="guess")


def _status(store: RolloutStore, turn: NewTurn, score: float | None = 1.0, text: str = "") -> str | None:
    found = store.feedback.record(completion_id=turn.completion_id, score=score, text=text)
    return None if found is None else found.status


def test_a_turn_without_a_next_state_is_judged_by_its_feedback(
    store: RolloutStore, make_turn: MakeTurn
) -> None:
    turn = store.turns.record(make_turn())
    assert _status(store, turn, -1.0, "name the file") == "judging"
    (claimed,) = store.judgements.claim("w", 10, 60)
    assert claimed.id == turn.id and claimed.next_state is None
    score, hint = store.feedback.judgements_of(turn.id)
    assert (score.kind, score.score, score.judge) == ("eval", -1.0, "user")
    assert (hint.kind, hint.hints) == ("hint", ["name the file"])


@pytest.mark.parametrize("session_over", [False, True])
def test_feedback_without_a_score_waits_for_the_next_state(
    store: RolloutStore, make_turn: MakeTurn, session_over: bool
) -> None:
    turn = store.turns.record(make_turn())
    if session_over:
        store.sessions.end("s")
    assert _status(store, turn, None, "shorter") == ("recorded" if session_over else "waiting")
    assert store.judgements.claim("w", 10, 60) == []
    assert [judgement.kind for judgement in store.feedback.judgements_of(turn.id)] == ["hint"]


def test_an_expired_turn_is_judged_by_late_feedback(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = store.turns.record(make_turn())
    store.sessions.end("s")
    assert _status(store, turn) == "judging"
    assert [claimed.id for claimed in store.judgements.claim("w", 10, 60)] == [turn.id]
    assert store.status.counts()["dropped"] == {}


@pytest.mark.every_database
@pytest.mark.parametrize("drop", [None, "neutral_score"])
def test_feedback_replaces_an_unused_judgement(
    store: RolloutStore, make_sample: MakeSample, drop: str | None
) -> None:
    turn = make_sample(drop=drop)
    assert _status(store, turn, -1.0) == "judging"
    assert store.samples.lease(0, 1) == [] and store.judgements.of_turn(turn.id) == []
    assert [claimed.id for claimed in store.judgements.claim("w", 1, 60)] == [turn.id]
    said = store.feedback.judgements_of(turn.id)
    assert store.judgements.finish(turn.id, said, SampleDraft(turn_id=turn.id, reward=-1.0))
    (sample,) = store.samples.lease(0, 1)
    assert sample.reward == -1.0 and store.judgements.of_turn(turn.id) == said


def test_feedback_does_not_change_a_leased_or_trained_sample(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    turn = make_sample(reward=1.0)
    store.samples.lease(0, 1)
    assert _status(store, turn, -1.0) == "recorded"
    store.samples.commit_lease(0, version=1)
    assert _status(store, turn, -1.0, "wrong") == "recorded"
    sample = store.samples.of_turn(turn.id)
    assert sample is not None and sample.state is SampleState.TRAINED and sample.reward == {"score": 1.0}
    assert [one.kind for one in store.feedback.judgements_of(turn.id)] == ["eval", "hint"]


def test_a_judgement_from_before_the_feedback_is_rejected(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = store.turns.record(make_turn())
    store.turns.answer(turn.id, [{"role": "user", "content": "no"}])
    store.judgements.claim("slow", 1, 60)
    assert _status(store, turn, 1.0) == "judging"
    guess = SampleDraft(turn_id=turn.id, reward=-1.0)
    assert not store.judgements.finish(turn.id, [GUESS], guess)
    assert not store.judgements.finish(turn.id, [], Drop("judge_error"))
    assert [claimed.judge_attempts for claimed in store.judgements.claim("quick", 1, 60)] == [1]
    assert not store.judgements.finish(turn.id, [GUESS], guess)
    said = store.feedback.judgements_of(turn.id)
    assert store.judgements.finish(turn.id, said, SampleDraft(turn_id=turn.id, reward=1.0))


def test_a_judge_may_drop_a_turn_with_feedback(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = store.turns.record(make_turn())
    _status(store, turn)
    store.judgements.claim("w", 1, 60)
    assert store.judgements.finish(turn.id, [], Drop("judge_error"))


@pytest.mark.every_database
def test_the_last_score_counts_and_every_text_is_stored(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = store.turns.record(make_turn())
    _status(store, turn, 1.0, "fine")
    _status(store, turn, -0.5, "but too long")
    _status(store, turn, None, "three lines")
    score, hint = store.feedback.judgements_of(turn.id)
    assert score.score == -0.5 and score.votes == [Vote(score=-1, text="but too long")]
    assert hint.hints == ["fine", "but too long", "three lines"]


def test_repeated_feedback_changes_nothing(store: RolloutStore, make_sample: MakeSample) -> None:
    turn = make_sample()
    assert _status(store, turn, 1.0) == "judging"
    store.judgements.claim("w", 1, 60)
    said = store.feedback.judgements_of(turn.id)
    store.judgements.finish(turn.id, said, SampleDraft(turn_id=turn.id, reward=1.0))
    assert _status(store, turn, 1.0) == "recorded"
    assert store.samples.ready_count() == 1 and store.feedback.judgements_of(turn.id) == said


def test_feedback_on_a_session_is_for_its_last_main_turn(store: RolloutStore, make_turn: MakeTurn) -> None:
    turns = [store.turns.record(make_turn()) for _ in range(2)]
    store.turns.record(make_turn(turn_type="side", state=TurnState.SIDE))
    feedback = store.feedback.record(session_id="s", score=1.0)
    assert feedback is not None and feedback.turn_id == turns[1].id
    assert feedback.completion_id == turns[1].completion_id


def test_feedback_on_an_unknown_turn_returns_none(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = store.turns.record(make_turn())
    assert store.feedback.record(completion_id="chatcmpl-x", score=1.0) is None
    assert store.feedback.record(session_id="x", score=1.0) is None
    assert store.feedback.record(completion_id=turn.completion_id, session_id="x", score=1.0) is None


def test_a_side_turn_only_stores_the_feedback(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = store.turns.record(make_turn(turn_type="side", state=TurnState.SIDE))
    assert _status(store, turn) == "recorded"
    assert store.judgements.claim("w", 1, 60) == []


@pytest.mark.parametrize("wrong", [{"score": 1.5}, {"score": float("nan")}, {}, {"text": ""}])
def test_empty_or_too_long_feedback_is_rejected(store: RolloutStore, wrong: dict[str, float]) -> None:
    with pytest.raises(StoreError, match="feedback"):
        store.feedback.record(completion_id="c", **wrong)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="needs a completion_id"):
        store.feedback.record(score=1.0)
