"""GET /v1/turns and /admin/turns: the state of a turn."""

from __future__ import annotations

import pytest

from openclaw.types import Drop, Judgement, SampleDraft, Vote, reason_of


def _judge(gateway, turn_id, outcome, score):
    store = gateway.store
    store.turns.answer(turn_id, [{"role": "user", "content": "thanks"}])
    store.judgements.claim("w", 9, 60)
    judgement = Judgement(
        kind="eval", score=score, votes=[Vote(score=int(score))], judge="rules", hints=["be short"]
    )
    store.judgements.finish(turn_id, [judgement], outcome)


def _ask(gateway, **headers):
    gateway.says("hello there")
    body = {"messages": [{"role": "user", "content": "hi"}]}
    return gateway.http.post("/v1/chat/completions", json=body, headers=headers).json()["id"]


def test_a_turn_without_a_next_state_waits_without_a_score(gateway):
    found = gateway.http.get(f"/v1/turns/{_ask(gateway, **{'X-Session-Id': 's1'})}").json()
    assert (found["session_id"], found["turn_type"], found["state"]) == ("s1", "main", "captured")
    assert found["score"] is None and found["sample_state"] is None and found["weight_versions"] == [3]


def test_score_hints_and_the_version_trained_on_the_turn_are_reported(gateway):
    completion = _ask(gateway)
    turn = gateway.turn(completion)
    _judge(gateway, turn.id, SampleDraft(turn_id=turn.id, reward=1.0), 1.0)
    store = gateway.store
    store.samples.lease(0, 1)
    store.versions.weights_live(0, 4, parent=3, restored=False, checkpoint_path=None, checksum="c")
    found = gateway.http.get(f"/v1/turns/{completion}").json()
    assert (found["score"], found["hints"], found["judge"]) == (1.0, ["be short"], "rules")
    assert (found["sample_state"], found["trained_version"]) == ("trained", 4)


@pytest.mark.parametrize(
    ("score", "votes", "reason"),
    [
        (
            -1.0,
            [Vote(score=1, text="praise"), Vote(score=-1, text="complaint:\n too long")],
            "complaint: too long",
        ),
        (0.0, [Vote(score=None, text="no reply"), Vote(score=0, text="a new request")], "a new request"),
        (1.0, [Vote(score=-1, text="complaint")], ""),
        (1.0, [Vote(score=1, text="word " * 100)], f"{('word ' * 100)[:159].rstrip()}…"),
    ],
)
def test_a_reason_is_the_text_of_the_first_vote_for_the_score(
    score: float, votes: list[Vote], reason: str
) -> None:
    assert reason_of(score, votes) == reason


def test_a_dropped_turn_has_a_reason(gateway):
    completion = _ask(gateway)
    _judge(gateway, gateway.turn(completion).id, Drop("neutral_score"), 0.0)
    assert gateway.http.get(f"/v1/turns/{completion}").json()["drop_reason"] == "neutral_score"


def test_the_turn_status_contains_no_conversation_text(gateway):
    answer = gateway.http.get(f"/v1/turns/{_ask(gateway)}")
    assert "hello there" not in answer.text and '"hi"' not in answer.text


def test_unknown_turns_and_other_peoples_turns_are_not_found(start_gateway):
    gateway = start_gateway(api_key=None, api_keys="ann=key-ann,bob=key-bob")
    ann, bob = ({"Authorization": f"Bearer key-{name}"} for name in ("ann", "bob"))
    completion = _ask(gateway, **ann)
    assert gateway.http.get(f"/v1/turns/{completion}", headers=ann).json()["person"] == "ann"
    assert gateway.http.get(f"/v1/turns/{completion}", headers=bob).status_code == 404
    assert gateway.http.get("/v1/turns/none", headers=ann).status_code == 404


def test_without_a_key_no_status_is_returned(keyed):
    completion = _ask(keyed)
    assert keyed.http.get(f"/v1/turns/{completion}", headers={"Authorization": "Bearer x"}).status_code == 401


def test_newest_turns_are_listed_first_and_can_be_filtered_by_session(gateway):
    ids = [_ask(gateway, **{"X-Session-Id": name}) for name in ("a", "b", "a")]
    data = gateway.http.get("/admin/turns").json()["data"]
    assert [turn["completion_id"] for turn in data] == ids[::-1]
    chosen = gateway.http.get("/admin/turns", params={"session_id": "b", "limit": 5}).json()["data"]
    assert [turn["session_id"] for turn in chosen] == ["b"]
    assert gateway.http.get("/admin/turns", params={"limit": "0"}).status_code == 400
