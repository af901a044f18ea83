"""POST /v1/feedback: a person's feedback reaches its turn."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fakes.running_gateway import KEY, RunningGateway, StartGateway

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def answer(gateway: RunningGateway, **body: object) -> Any:
    return gateway.http.post("/v1/chat/completions", json={"messages": HELLO, **body}).json()


def tell(gateway: RunningGateway, **body: object) -> httpx.Response:
    response: httpx.Response = gateway.http.post("/v1/feedback", json=body)
    return response


def judgements(gateway: RunningGateway, completion_id: str) -> list[Any]:
    return list(gateway.store.feedback.judgements_of(gateway.turn(completion_id).id))


def test_a_thumb_on_an_answer_becomes_a_judgement(gateway: RunningGateway) -> None:
    gateway.says("hi")
    said = answer(gateway)
    told = tell(gateway, completion_id=said["id"], thumbs="down", text=" shorter, please ")
    assert told.status_code == 200
    assert told.json() == {
        "object": "feedback",
        "completion_id": said["id"],
        "session_id": said["session_id"],
        "status": "judging",
    }
    score, hint = judgements(gateway, said["id"])
    assert (score.score, score.judge, hint.hints) == (-1.0, "user", ["shorter, please"])
    assert gateway.turn(said["id"]).state == "answered"


def test_feedback_with_only_a_session_is_for_its_last_answer(gateway: RunningGateway) -> None:
    gateway.says("hi")
    first, last = (answer(gateway, session_id="s")["id"] for _ in range(2))
    assert tell(gateway, session_id="s", score=0.5).json()["completion_id"] == last
    assert judgements(gateway, last)[0].score == 0.5 and judgements(gateway, first) == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"score": 1}, "completion_id"),
        ({"session_id": "s"}, "score"),
        ({"session_id": "s", "score": 2}, "score"),
        ({"session_id": "s", "score": True}, "score"),
        ({"session_id": "s", "score": "good"}, "score"),
        ({"session_id": "s", "thumbs": "sideways"}, "thumbs"),
        ({"session_id": "s", "thumbs": ["up"]}, "thumbs"),
        ({"session_id": "s", "thumbs": "up", "score": 1}, "thumbs"),
        ({"session_id": 5, "score": 1}, "session_id"),
        ({"session_id": "s", "text": "x" * 20_001}, "text"),
        ({"session_id": "s", "text": "   "}, "score"),
    ],
)
def test_invalid_feedback_is_reported_by_field(
    gateway: RunningGateway, body: dict[str, Any], param: str
) -> None:
    told = tell(gateway, **body)
    assert (told.status_code, told.json()["error"]["param"]) == (400, param), told.text


def test_feedback_on_an_unknown_answer_is_not_found(gateway: RunningGateway) -> None:
    gateway.says("hi")
    private = answer(gateway, train=False)
    for body in ({"completion_id": "chatcmpl-x"}, {"session_id": "x"}, {"completion_id": private["id"]}):
        told = tell(gateway, score=1, **body)
        assert (told.status_code, told.json()["error"]["code"]) == (404, "not_found")


def test_feedback_needs_a_key_and_a_store(start_gateway: StartGateway) -> None:
    gateway = start_gateway(enable_rl_intercept=False, api_key=KEY)
    assert httpx.post(f"{gateway.url}/v1/feedback", json={}).status_code == 401
    told = tell(gateway, session_id="s", score=1)
    assert (told.status_code, told.json()["error"]["code"]) == (409, "not_recording")


def test_another_persons_answer_cannot_be_rated(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_keys="ada=key-a,bob=key-b")
    gateway.says("hi")
    ada, bob = ({"Authorization": f"Bearer {key}"} for key in ("key-a", "key-b"))
    body = {"messages": HELLO, "session_id": "s"}
    said = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=ada).json()
    for meant in ({"completion_id": said["id"]}, {"session_id": "s"}):
        for headers, status in ((bob, 404), (ada, 200)):
            word = httpx.post(f"{gateway.url}/v1/feedback", json={**meant, "score": 1}, headers=headers)
            assert word.status_code == status


def test_a_service_with_one_key_may_give_feedback_for_each_of_its_users(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_keys="service=key-s")
    gateway.says("hi")
    with httpx.Client(base_url=gateway.url, headers={"Authorization": "Bearer key-s"}) as service:
        said = service.post("/v1/chat/completions", json={"messages": HELLO, "user": "carol"}).json()["id"]
        for user, status in (("dave", 404), ("carol", 200)):
            word = service.post("/v1/feedback", json={"completion_id": said, "score": 1, "user": user})
            assert word.status_code == status
            assert service.get(f"/v1/turns/{said}", params={"user": user}).status_code == status


def test_with_named_keys_feedback_needs_the_key_of_the_answer(
    start_gateway: StartGateway,
) -> None:
    gateway = start_gateway(api_keys="ada=ka,bob=kb", api_key="plain")
    gateway.says("hi")

    def post(key: str, path: str, **body: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        answer: httpx.Response = gateway.http.post(path, json=body, headers=headers)
        return answer

    def ask(key: str, **body: object) -> str:
        return str(post(key, "/v1/chat/completions", messages=HELLO, **body).json()["id"])

    of_ada, of_eve, of_nobody = ask("ka"), ask("ka", user="eve"), ask("plain")
    cases = [
        ("ka", of_ada, {}, 200),
        ("kb", of_ada, {}, 404),
        ("kb", of_ada, {"user": "ada"}, 404),
        ("plain", of_ada, {}, 404),
        ("plain", of_ada, {"user": "ada"}, 404),
        ("ka", of_eve, {"user": "eve"}, 200),
        ("plain", of_nobody, {}, 200),
    ]
    for key, completion, body, status in cases:
        told = post(key, "/v1/feedback", completion_id=completion, score=1, **body)
        assert told.status_code == status, (key, body, told.text)
