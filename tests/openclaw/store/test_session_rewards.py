"""The reward of a session, turns of environments, and trajectories by session and group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from openclaw.errors import StoreError
from openclaw.store import RolloutStore
from openclaw.store.files.exporting import export_lines
from openclaw.store.files.importing import import_lines
from openclaw.types import NewTurn, Turn, TurnState

MakeTurn = Callable[..., NewTurn]
TOOL = [{"role": "tool", "content": "exit code 1", "tool_call_id": "c"}]


def _turns(store: RolloutStore, make_turn: MakeTurn, count: int, **changes: object) -> list[Turn]:
    return [store.turns.record(make_turn(**changes)) for _ in range(count)]


def _scores(store: RolloutStore, turns: list[Turn]) -> list[float | None]:
    said = [store.feedback.judgements_of(turn.id) for turn in turns]
    return [one[0].score if one and one[0].kind == "eval" else None for one in said]


@pytest.mark.every_database
@pytest.mark.parametrize(
    ("discount", "scores"), [(1.0, [-1.0, -1.0, -1.0]), (0.5, [-0.25, -0.5, -1.0]), (0.0, [0.0, 0.0, -1.0])]
)
def test_a_sessions_reward_is_spread_over_its_turns(
    store: RolloutStore, make_turn: MakeTurn, discount: float, scores: list[float]
) -> None:
    turns = _turns(store, make_turn, 3, source="environment")
    side = store.turns.record(make_turn(turn_type="side", state=TurnState.SIDE))
    rewards = store.feedback.reward_session("s", -1.0, "look before you leap", discount)
    assert [reward.score for reward in rewards] == scores == _scores(store, turns)
    assert {reward.status for reward in rewards} == {"judging"} and store.feedback.judgements_of(
        side.id
    ) == []
    hints = [
        one.hints for turn in turns for one in store.feedback.judgements_of(turn.id) if one.kind == "hint"
    ]
    assert hints == [["look before you leap"]]
    assert [turn.id for turn in store.judgements.claim("w", 9, 60)] == [turn.id for turn in turns]


def test_a_turn_keeps_its_own_score_despite_a_session_reward(
    store: RolloutStore, make_turn: MakeTurn
) -> None:
    first, second = _turns(store, make_turn, 2)
    store.feedback.record(completion_id=first.completion_id, score=-0.5)
    rewards = store.feedback.reward_session("s", 1.0)
    assert [reward.status for reward in rewards] == ["own_score", "judging"]
    assert _scores(store, [first, second]) == [-0.5, 1.0]
    store.feedback.record(completion_id=second.completion_id, score=0.25)
    assert _scores(store, [second]) == [0.25]


def test_a_later_reward_of_the_session_replaces_the_earlier_one(
    store: RolloutStore, make_turn: MakeTurn
) -> None:
    turns = _turns(store, make_turn, 2)
    for score in (1.0, -1.0, -1.0):
        store.feedback.reward_session("s", score)
    assert _scores(store, turns) == [-1.0, -1.0]


@pytest.mark.parametrize(("score", "discount"), [(1.5, 1.0), (1.0, 1.5), (1.0, -0.1)])
def test_a_reward_out_of_range_changes_nothing(
    store: RolloutStore, make_turn: MakeTurn, score: float, discount: float
) -> None:
    (turn,) = _turns(store, make_turn, 1)
    with pytest.raises(StoreError, match="must be between"):
        store.feedback.reward_session("s", score, discount=discount)
    assert store.feedback.judgements_of(turn.id) == [] and store.feedback.reward_session("unknown", 1.0) == []


@pytest.mark.every_database
def test_the_next_state_of_an_environments_turn_is_stored_and_not_judged(
    store: RolloutStore, make_turn: MakeTurn
) -> None:
    (turn,) = _turns(store, make_turn, 1, source="environment")
    assert store.turns.answer(turn.id, TOOL) and not store.turns.answer(turn.id, [])
    kept = store.turns.get(turn.id)
    assert kept is not None and (kept.state, kept.next_state) == (TurnState.CAPTURED, TOOL)
    assert store.judgements.claim("w", 9, 60) == []
    store.sessions.end("s")
    assert store.feedback.reward_session("s", 1.0)[0].status == "judging"
    (claimed,) = store.judgements.claim("w", 9, 60)
    assert (claimed.id, claimed.next_state) == (turn.id, TOOL)


@pytest.mark.every_database
def test_turns_of_a_group_are_read_session_by_session(store: RolloutStore, make_turn: MakeTurn) -> None:
    for session in ("a", "b", "c"):
        _turns(store, make_turn, 2, session_id=session, group_id="g", task_id="t", person="ann")
    _turns(store, make_turn, 1, session_id="d", person="bob")
    ids = store.sessions.of_group("g")
    assert ids == ["a", "b", "c"] and store.sessions.of_group("g", "bob") == []
    found, left = store.turns.of_sessions([*ids, "d", "nobody"], most=3)
    assert {id_: len(turns) for id_, turns in found.items()} == {"a": 2, "b": 2} and left == [
        "c",
        "d",
        "nobody",
    ]
    assert {turn.task_id for turns in found.values() for turn in turns} == {"t"}
    assert store.turns.of_sessions(["d", "nobody"], 9, person="ann") == ({"d": [], "nobody": []}, [])


def test_rewards_and_groups_survive_an_export(
    store: RolloutStore, make_turn: MakeTurn, tmp_path: Path
) -> None:
    turns = _turns(store, make_turn, 2, group_id="g", source="environment")
    store.feedback.reward_session("s", 1.0)
    (tmp_path / "all.jsonl").write_bytes(b"".join(export_lines(store)))
    other = RolloutStore(tmp_path / "other")
    import_lines(other, tmp_path / "all.jsonl")
    assert other.sessions.of_group("g") == ["s"] and _scores(other, turns) == [1.0, 1.0]
    other.feedback.reward_session("s", -1.0)
    assert _scores(other, turns) == [-1.0, -1.0]
    other.close()
