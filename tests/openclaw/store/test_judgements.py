from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from openclaw.errors import StoreError
from openclaw.store import RolloutStore
from openclaw.types import Drop, Judgement, NewTurn, SampleDraft, SampleState, Turn, TurnState, Vote

MakeTurn = Callable[..., NewTurn]
JUDGEMENT = Judgement(
    kind="eval",
    score=-1.0,
    votes=[Vote(score=-1, text="wrong"), Vote(score=None)],
    judge="rules",
    latency=0.5,
)


@pytest.fixture
def answered(store: RolloutStore, make_turn: MakeTurn) -> Turn:
    turn = store.turns.record(make_turn())
    store.turns.answer(turn.id, [{"role": "user", "content": "Wrong."}])
    return turn


@pytest.mark.every_database
def test_two_workers_never_claim_the_same_turn(
    store: RolloutStore, answered: Turn, make_turn: MakeTurn
) -> None:
    (claimed,) = store.judgements.claim("a", limit=4, claim_seconds=10)
    assert claimed.id == answered.id and claimed.next_state == [{"role": "user", "content": "Wrong."}]
    assert store.judgements.claim("b", limit=4, claim_seconds=10) == []


@pytest.mark.every_database
def test_an_expired_claim_goes_to_the_next_worker(store: RolloutStore, answered: Turn) -> None:
    (first,) = store.judgements.claim("a", limit=1, claim_seconds=0.02)
    time.sleep(0.03)
    (second,) = store.judgements.claim("b", limit=1, claim_seconds=10)
    assert (first.judge_attempts, second.judge_attempts) == (1, 2)


@pytest.mark.every_database
def test_a_released_claim_waits_for_its_retry_time(store: RolloutStore, answered: Turn) -> None:
    store.judgements.claim("a", limit=1, claim_seconds=10)
    store.judgements.release_claim(answered.id, retry_after=0.8)
    assert store.judgements.claim("a", limit=1, claim_seconds=10) == []
    time.sleep(0.85)
    assert len(store.judgements.claim("a", limit=1, claim_seconds=10)) == 1


def test_a_claim_returned_without_an_attempt_is_not_counted(store: RolloutStore, answered: Turn) -> None:
    store.judgements.claim("a", limit=1, claim_seconds=10)
    store.judgements.release_claim(answered.id, was_try=False)
    (again,) = store.judgements.claim("a", limit=1, claim_seconds=10)
    assert again.judge_attempts == 1


@pytest.mark.every_database
def test_a_restarted_worker_releases_its_earlier_claims(store: RolloutStore, answered: Turn) -> None:
    store.judgements.claim("judge-0", limit=1, claim_seconds=1000)
    assert store.judgements.release_claims_of("judge-1") == 0
    assert store.judgements.release_claims_of("judge-0") == 1
    assert len(store.judgements.claim("judge-0", limit=1, claim_seconds=10)) == 1


@pytest.mark.every_database
def test_judgement_and_sample_are_stored_together(store: RolloutStore, answered: Turn) -> None:
    draft = SampleDraft(turn_id=answered.id, reward={"score": -1.0}, loss_mask=[0, 1], metadata={"note": "x"})
    assert store.judgements.finish(answered.id, [JUDGEMENT], draft)
    turn, sample = store.turns.get(answered.id), store.samples.of_turn(answered.id)
    assert turn is not None and turn.state is TurnState.JUDGED and turn.judged_at is not None
    assert sample is not None and sample.state is SampleState.READY
    assert (sample.reward, sample.loss_mask, sample.metadata) == ({"score": -1.0}, [0, 1], {"note": "x"})
    assert store.judgements.of_turn(answered.id) == [JUDGEMENT]


def test_a_drop_is_counted_by_its_reason(store: RolloutStore, answered: Turn) -> None:
    assert store.judgements.finish(answered.id, [JUDGEMENT], Drop("neutral_score"))
    assert store.status.counts()["dropped"] == {"neutral_score": 1}
    assert store.samples.ready_count() == 0


@pytest.mark.every_database
def test_a_second_judgement_of_a_turn_changes_nothing(store: RolloutStore, answered: Turn) -> None:
    assert store.judgements.finish(answered.id, [JUDGEMENT], Drop("neutral_score"))
    assert not store.judgements.finish(answered.id, [JUDGEMENT], SampleDraft(turn_id=answered.id, reward=1.0))
    assert store.status.counts()["samples"] == {"dropped": 1}
    assert len(store.judgements.of_turn(answered.id)) == 1


@pytest.mark.parametrize("state", [TurnState.CAPTURED, TurnState.SIDE, TurnState.ABORTED])
def test_only_an_answered_turn_can_be_judged(
    store: RolloutStore, make_turn: MakeTurn, state: TurnState
) -> None:
    turn = store.turns.record(make_turn(state=state))
    with pytest.raises(StoreError, match=f"is {state}: it cannot become judged"):
        store.judgements.finish(turn.id, [JUDGEMENT], Drop("x"))
    assert store.judgements.of_turn(turn.id) == []


def test_an_expired_turn_is_not_judged(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = store.turns.record(make_turn())
    store.sessions.end(turn.session_id)
    with pytest.raises(StoreError, match="is expired"):
        store.judgements.finish(turn.id, [], Drop("x"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"turn_id": "other"}, "belongs to another turn, other"),
        ({"reward": float("nan")}, "not a finite number"),
        ({"reward": {"score": float("inf")}}, "not a finite number"),
        ({"loss_mask": [1]}, "must have 2 values, each 0 or 1"),
        ({"loss_mask": [1, 2]}, "must have 2 values, each 0 or 1"),
    ],
)
def test_a_draft_that_does_not_match_its_turn_is_rejected_and_the_turn_stays_answered(
    store: RolloutStore, answered: Turn, changes: dict[str, object], message: str
) -> None:
    draft = SampleDraft(**({"turn_id": answered.id, "reward": 1.0} | changes))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=message):
        store.judgements.finish(answered.id, [JUDGEMENT], draft)
    turn = store.turns.get(answered.id)
    assert turn is not None and turn.state is TurnState.ANSWERED
