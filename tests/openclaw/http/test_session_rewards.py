"""Environments over HTTP: group and task of a turn, the reward of a session, and reading its turns."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fakes.running_gateway import RunningGateway, StartGateway

ASK: list[Any] = [{"role": "user", "content": "hello"}]
EPISODE = {"X-Session-Id": "e1", "X-Group-Id": "g", "X-Task-Id": "t", "X-Source": "environment"}


def _episode(gateway: RunningGateway) -> list[str]:
    """Creates two turns of an episode; returns the ids of their completions."""
    gateway.says("ls")
    first = gateway.http.post("/v1/chat/completions", json={"messages": ASK}, headers=EPISODE).json()
    more = [*ASK, first["choices"][0]["message"], {"role": "user", "content": "command not found"}]
    second = gateway.http.post("/v1/chat/completions", json={"messages": more}, headers=EPISODE).json()
    return [first["id"], second["id"]]


def test_an_episode_is_rewarded_and_returned_with_its_ids(gateway: RunningGateway) -> None:
    ids = _episode(gateway)
    told = gateway.http.post("/v1/feedback", json={"session_id": "e1", "scope": "session", "score": 0.5})
    assert told.json() == {
        "object": "feedback",
        "scope": "session",
        "session_id": "e1",
        "turns": [{"completion_id": id_, "score": 0.5, "status": "judging"} for id_ in ids],
    }
    read = gateway.http.post("/admin/trajectories", json={"group": "g", "content": True})
    assert read.status_code == 200, read.text
    (session,) = read.json()["data"]
    assert session["session_id"] == "e1" and read.json()["left"] == []
    for id_, given in zip(ids, session["turns"], strict=True):
        stored = gateway.turn(id_)
        names = (
            "completion_id",
            "prompt_ids",
            "completion_ids",
            "completion_log_probs",
            "messages",
            "source",
        )
        assert {name: given[name] for name in names} == {name: getattr(stored, name) for name in names}
        assert [tuple(span) for span in given["version_spans"]] == stored.version_spans
        assert (given["group_id"], given["task_id"], given["source"]) == ("g", "t", "environment")
    assert session["turns"][0]["next_state"][0]["content"] == "command not found"


def test_group_task_and_source_may_be_body_fields(gateway: RunningGateway) -> None:
    gateway.says("hi")
    body = {"messages": ASK, "group": "g2", "task": "t2", "source": "environment"}
    turn = gateway.turn(gateway.http.post("/v1/chat/completions", json=body).json()["id"])
    assert (turn.group_id, turn.task_id, turn.source) == ("g2", "t2", "environment")
    message = {"max_tokens": 9, **body}
    turn = gateway.turn(gateway.http.post("/v1/messages", json=message).json()["id"])
    assert (turn.group_id, turn.task_id, turn.source) == ("g2", "t2", "environment")


def test_sessions_are_listed_without_content_up_to_the_limit(gateway: RunningGateway) -> None:
    gateway.says("hi")
    for session in ("a", "b"):
        gateway.http.post("/v1/chat/completions", json={"messages": ASK, "session_id": session})
    read = gateway.http.post("/admin/trajectories", json={"session_ids": ["a", "b", "x"], "limit": 1}).json()
    assert [one["session_id"] for one in read["data"]] == ["a"] and read["left"] == ["b", "x"]
    assert "messages" not in read["data"][0]["turns"][0]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"scope": "all"}, "scope"),
        ({"scope": "session", "session_id": None}, "session_id"),
        ({"scope": "session", "completion_id": "chatcmpl-1"}, "completion_id"),
        ({"scope": "session", "score": None, "text": "well"}, "score"),
        ({"scope": "session", "score": 3}, "score"),
        ({"scope": "session", "discount": 2}, "discount"),
        ({"scope": "session", "discount": "half"}, "discount"),
        ({"discount": 0.5}, "discount"),
    ],
)
def test_an_invalid_reward_is_reported_by_field(
    gateway: RunningGateway, body: dict[str, Any], param: str
) -> None:
    told = gateway.http.post("/v1/feedback", json={"session_id": "s", "score": 1, **body})
    assert (told.status_code, told.json()["error"]["param"]) == (400, param), told.text


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"source": "rules"}, "source"),
        ({"group": "x" * 257}, "group"),
        ({"task": "a\nb"}, "task"),
        ({"task": 5}, "task"),
    ],
)
def test_an_invalid_turn_label_is_reported_by_field(
    gateway: RunningGateway, changes: dict[str, Any], param: str
) -> None:
    told = gateway.http.post("/v1/chat/completions", json={"messages": ASK, **changes})
    assert (told.status_code, told.json()["error"]["param"]) == (400, param), told.text


@pytest.mark.parametrize(
    "body",
    [{}, {"session_ids": [], "group": None}, {"session_ids": ["a"], "group": "g"}, {"session_ids": [5]},
     {"session_ids": ["a"] * 257}, {"session_ids": ["a"], "limit": 0}, {"session_ids": ["a"], "content": 1}],
)  # fmt: skip
def test_an_invalid_trajectory_query_is_reported_by_field(
    gateway: RunningGateway, body: dict[str, Any]
) -> None:
    told = gateway.http.post("/admin/trajectories", json=body)
    assert told.status_code == 400 and told.json()["error"]["param"], told.text


def test_an_unknown_sessions_reward_is_not_found(gateway: RunningGateway) -> None:
    told = gateway.http.post("/v1/feedback", json={"session_id": "x", "scope": "session", "score": 1})
    assert (told.status_code, told.json()["error"]["code"]) == (404, "not_found")


def test_only_the_administrator_and_a_named_key_read_turns(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_keys="ada=key-a,bob=key-b", admin_key="key-admin")
    gateway.says("hi")
    ada, bob, admin, owner = (
        {"Authorization": f"Bearer {key}"} for key in ("key-a", "key-b", "key-admin", "secret-key")
    )
    said = {"messages": ASK, "session_id": "s"}
    assert httpx.post(f"{gateway.url}/v1/chat/completions", json=said, headers=ada).status_code == 200
    asked = {"session_ids": ["s"]}

    def read(path: str, headers: dict[str, str]) -> Any:
        return httpx.post(f"{gateway.url}{path}", json=asked, headers=headers)

    assert len(read("/admin/trajectories", admin).json()["data"][0]["turns"]) == 1
    assert len(read("/v1/trajectories", ada).json()["data"][0]["turns"]) == 1
    assert read("/v1/trajectories", bob).json()["data"][0]["turns"] == []
    assert read("/v1/trajectories", owner).status_code == 403
    assert {read("/admin/trajectories", headers).status_code for headers in (ada, owner, {})} == {401}
    reward = {"session_id": "s", "scope": "session", "score": 1}
    for headers, status in ((bob, 404), (ada, 200)):
        word = httpx.post(f"{gateway.url}/v1/feedback", json=reward, headers=headers)
        assert word.status_code == status
