"""Changes that people may make on the page, and rejected ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from openclaw.types import Drop, Judgement, NewTurn
from tests.fakes.fixtures import JudgeTurn, Talk
from tests.fakes.running_gateway import RunningGateway
from tests.openclaw.page.scripted_gate import scripted_gate

POSTS = (
    ("POST", "/page/turn/verdict"),
    ("POST", "/page/turn/again"),
    ("POST", "/page/versions/rollback"),
    ("POST", "/page/versions/pin"),
    ("POST", "/page/versions/diff"),
    ("POST", "/page/privacy/delete"),
    ("POST", "/admin/turns/x/verdict"),
    ("POST", "/admin/turns/x/again"),
    ("POST", "/admin/purge"),
    ("DELETE", "/admin/persons/ada/content"),
    ("DELETE", "/admin/memory/1"),
    ("POST", "/page/privacy/forget"),
)


@pytest.fixture
def browser(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, headers={"Origin": gateway.url}, timeout=20) as client:
        yield client


FOREIGN: tuple[dict[str, str], ...] = (
    {"Origin": "https://evil.example"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Host": "evil.example"},
    {"X-Forwarded-For": "8.8.8.8"},
)


def test_other_sites_and_machines_cannot_change_anything(gateway: RunningGateway, talk: Talk) -> None:
    talk("hi")
    body = b'{"score": 1, "retention_days": 0}'
    with httpx.Client(base_url=gateway.url) as client:
        for method, path in POSTS:
            for headers in FOREIGN:
                answer = client.request(method, path, content=body, headers=headers)
                assert answer.status_code == 403, (method, path, headers)
    assert gateway.store.status.counts()["turns"] == {"captured": 1}


def test_a_user_rating_replaces_the_judges_score(
    browser: httpx.Client, talk: Talk, judge: JudgeTurn, gateway: RunningGateway
) -> None:
    (completion,) = talk("hi")
    judge(completion, 1.0)
    given = {"id": completion, "verdict": "bad", "hint": "say it in German"}
    answer = browser.post("/page/turn/verdict", data=given)
    assert answer.status_code == 303 and "said=judging" in answer.headers["location"]
    page = browser.get(answer.headers["location"]).text
    assert "your rating replaces the judge&#39;s score" in page and "say it in German" in page
    judgements = gateway.store.feedback.judgements_of(gateway.turn(completion).id)
    assert [(one.kind, one.score) for one in judgements] == [("eval", -1.0), ("hint", 1.0)]
    assert (
        gateway.turn(completion).state == "answered"
        and gateway.store.judgements.of_turn(gateway.turn(completion).id) == []
    )


def test_an_invalid_verdict_is_reported(browser: httpx.Client, talk: Talk) -> None:
    (completion,) = talk("hi")
    path = f"/admin/turns/{completion}/verdict"
    for body in ({}, {"score": 3}, {"score": True}, {"text": " "}, {"text": "x" * 20_001}):
        assert browser.post(path, json=body).status_code == 400
    assert browser.post("/admin/turns/nobody/verdict", json={"score": 1}).status_code == 404
    assert browser.post(path, json={"score": 1}).json()["status"] == "judging"


def test_a_prompt_is_repeated_on_the_live_weights_without_storing_it(
    browser: httpx.Client, talk: Talk, gateway: RunningGateway
) -> None:
    (completion,) = talk("hi", answer="hello there")
    gateway.engine.version, gateway.engine._prompts = 4, []
    gateway.says("how are you today?")
    found = browser.post(f"/admin/turns/{completion}/again").json()
    assert found["answer"]["content"] == "how are you today?" and found["weight_versions"] == [4]
    assert found["before"]["answer"]["content"] == "hello there" and found["before"]["weight_versions"] == [3]
    first, second = gateway.engine.requests[:2]
    assert first["input_ids"] == second["input_ids"]
    assert gateway.store.status.counts()["turns"] == {"captured": 1}
    part = browser.post("/page/turn/again", data={"id": completion}, headers={"HX-Request": "true"})
    assert "how are you today?" in part.text and "<html" not in part.text
    assert "<html" in browser.post("/page/turn/again", data={"id": completion}).text
    assert browser.post("/admin/turns/nobody/again").status_code == 404


def test_a_prompt_is_repeated_on_an_older_version(
    browser: httpx.Client, talk: Talk, gateway: RunningGateway, tmp_path: Path
) -> None:
    (completion,) = talk("hi", answer="hello there")
    gateway.store.versions.weights_live(-1, 0, None, True, str(tmp_path), "c0")
    gateway.store.versions.weights_live(0, 1, 0, False, "/gone", "c1")
    gateway.engine.tries[0] = gateway.says("good day to you")
    page = browser.get("/page/turn", params={"id": completion}).text
    assert '<option value="0">' in page and '<option value="1">' not in page
    asked = len(gateway.engine.requests)
    found = browser.post(f"/admin/turns/{completion}/again", json={"version": 0}).json()
    assert found["answer"]["content"] == "good day to you" and found["weight_versions"] == [0]
    assert gateway.engine.tried[0]["prompts"] == [gateway.turn(completion).prompt_ids]
    assert len(gateway.engine.requests) == asked and gateway.store.status.counts()["turns"] == {"captured": 1}
    part = browser.post("/page/turn/again", data={"id": completion, "version": "0"})
    assert "good day to you" in part.text
    for version, status in ((1, 409), (7, 404), ("x", 400)):
        answer = browser.post(f"/admin/turns/{completion}/again", json={"version": version})
        assert answer.status_code == status


def test_a_session_is_deleted_only_after_confirmation(
    browser: httpx.Client, talk: Talk, gateway: RunningGateway
) -> None:
    talk("hi", session="s1")
    assert browser.post("/page/privacy/delete", data={"session": "s1"}).status_code == 400
    assert gateway.store.sessions.get("s1") is not None
    answer = browser.post("/page/privacy/delete", data={"session": "s1", "sure": "1"})
    assert "Deleted: 1 turns." in browser.get(answer.headers["location"]).text
    assert gateway.store.sessions.get("s1") is None
    assert browser.post("/page/privacy/delete", data={"session": "s1", "sure": "1"}).status_code == 404


def test_a_person_is_shown_exported_and_deleted(
    browser: httpx.Client, talk: Talk, gateway: RunningGateway
) -> None:
    talk("one", "two", session="a", user="ada")
    talk("three", session="b", user="bob")
    people = {one["person"]: one["turns"] for one in browser.get("/admin/privacy").json()["people"]}
    assert people == {"ada": 2, "bob": 1}
    lines = [
        json.loads(line) for line in browser.get("/admin/export", params={"person": "ada"}).text.splitlines()
    ]
    assert [line["turn"]["messages"][-1]["content"] for line in lines if line["kind"] == "turn"] == [
        "one",
        "two",
    ]
    assert browser.delete("/admin/persons/ada/content").json()["deleted"]["turns"] == 2
    assert browser.delete("/admin/persons/ada/content").status_code == 404
    assert [one["person"] for one in browser.get("/admin/privacy").json()["people"]] == ["bob"]


def test_a_persons_preferences_are_shown_and_deleted(
    browser: httpx.Client, gateway: RunningGateway, make_turn: Callable[..., NewTurn]
) -> None:
    store, wish = gateway.store, "shorter, <b>please</b>"
    turn = store.turns.record(make_turn(person="ada", memory=["in German"]))
    store.turns.answer(turn.id, [{"role": "user", "content": "no"}])
    found = [Judgement(kind="hint", score=1.0, votes=[], judge="test", hints=[wish])]
    store.judgements.finish(turn.id, found, Drop("test"))
    page = browser.get("/page/privacy").text
    assert "shorter, &lt;b&gt;please&lt;/b&gt;" in page and "in prompts; stated" in page
    (person,) = browser.get("/admin/privacy").json()["people"]
    (shown,) = person["wishes"]
    store.memory.hold(shown["id"], 4, {})
    store.versions.weights_live(-1, 4, None, True, None, None)
    assert "learned by v4" in browser.get("/page/privacy").text
    assert "in German" in browser.get("/page/turn", params={"id": turn.completion_id}).text
    answer = browser.post("/page/privacy/forget", data={"wish": shown["id"]})
    assert answer.headers["location"].startswith("/page/privacy") and store.memory.wishes() == []
    assert browser.post("/page/privacy/forget", data={"wish": shown["id"]}).status_code == 404


def test_old_finished_turns_are_purged(browser: httpx.Client, talk: Talk, gateway: RunningGateway) -> None:
    talk("hi", session="done")
    gateway.store.sessions.end("done")
    talk("hello", session="open")
    assert browser.post("/admin/purge", json={}).status_code == 400
    assert browser.post("/admin/purge", json={"retention_days": 0}).json()["deleted"]["turns"] == 1
    assert gateway.store.status.counts()["turns"] == {"captured": 1}


def test_without_a_gate_versions_are_read_from_the_store(
    browser: httpx.Client, gateway: RunningGateway
) -> None:
    for version in range(3):
        parent = version - 1 if version else None
        gateway.store.versions.weights_live(-1, version, parent, version == 0, None, f"c{version}")
    page = browser.get("/page/versions").text
    assert "Version 2" in page and 'class="badge status-live">v2' in page


@pytest.mark.parametrize("by_number", [False, True])
def test_versions_show_a_rejections_reason_and_one_click_rolls_back(
    browser: httpx.Client, gateway: RunningGateway, by_number: bool
) -> None:
    asked = scripted_gate(gateway.app, by_number)
    page = browser.get("/page/versions").text
    assert "KL &lt;b&gt;9.1&lt;/b&gt; above 1" in page and "Go back to version 1" in page
    assert "Go back to version 2" not in page and "Go back to version 3" not in page
    answer = browser.post("/page/versions/rollback", data={"version": "1", "drop_turns": "1"})
    assert answer.status_code == 303 and asked == [{"version": 1, "drop_turns": True}]
    output = browser.get(answer.headers["location"]).text
    assert "Version 1 is live again." in output
    assert "Restore version 2" in output, "what was live can come back"
    assert "is live again" not in browser.get(answer.headers["location"]).text, "Back does not tell it again"
    forged = browser.get("/page/versions?done=1&was=0&waits=2&pinned=1&note=1&pin_waits=1").text
    assert "is live again" not in forged and "Restore version" not in forged and "is pinned" not in forged
    browser.post("/page/versions/rollback", data={"version": "1", "drop_turns": "0"})
    assert asked[1] == {"version": 1, "drop_turns": False}


def test_a_version_shows_the_turns_it_learned_from_and_what_followed_them(
    browser: httpx.Client, gateway: RunningGateway, talk: Talk, judge: JudgeTurn
) -> None:
    [completion] = talk("what is <i>2+2</i>?")
    judge(completion, -1.0, "say <b>only</b> the number")
    gateway.store.versions.weights_live(-1, 0, None, True, None, None)
    gateway.store.samples.lease(0, 1)
    gateway.store.versions.weights_live(0, 1, 0, False, None, None)
    page = browser.get("/page/version?n=1").text
    for shown in ("what is &lt;i&gt;2+2&lt;/i&gt;?", "thanks", "say &lt;b&gt;only&lt;/b&gt; the number"):
        assert shown in page
    assert f"/page/turn?id={completion}" in page and "1 turn: " in page and "1 bad" in page
    assert browser.get("/page/version?n=7").status_code == 404
    found = browser.get("/admin/versions/1/turns").json()
    assert [one["completion_id"] for one in found["data"]] == [completion]
    assert (found["turns"], found["good"], found["bad"], found["next"]) == (1, 0, 1, None)
    assert "learned from 1 turn</a>" in browser.get("/page/versions").text


def test_the_turns_of_a_rejected_version_leave_the_quarantine_by_click(
    browser: httpx.Client, gateway: RunningGateway, talk: Talk, judge: JudgeTurn
) -> None:
    judge(talk("what is 2+2?")[0])
    gateway.store.versions.weights_live(-1, 0, None, True, None, None)
    gateway.store.samples.lease(0, 1)
    why = {"reason": "KL is 9", "stage": "likelihood", "measurements": {"kl": 9.0}}
    gateway.store.versions.weights_rejected(0, 1, 0, None, why)
    page = browser.get("/page/version?n=1").text
    assert "Turns of the rejected training step" in page and "1 of its turns is in quarantine" in page
    assert "KL divergence from the live weights on the newest answers" in page
    answer = browser.post("/page/versions/quarantine", data={"version": "1", "then": "release"})
    assert "Done for 1 turn." in browser.get(answer.headers["location"]).text
    assert gateway.store.status.counts()["samples"] == {"ready": 1}


def test_versions_are_compared_on_first_messages_of_conversations(
    browser: httpx.Client, gateway: RunningGateway, talk: Talk
) -> None:
    talk("what is 2+2?", "too long, only the number")
    scripted_gate(gateway.app)
    page = browser.get("/page/versions/diff?a=1&b=2").text
    assert "what is 2+2?</textarea>" in page


def test_a_version_is_pinned_and_two_are_compared(
    browser: httpx.Client, gateway: RunningGateway, talk: Talk
) -> None:
    talk("what is 2+2?")
    asked = scripted_gate(gateway.app)
    page = browser.get("/page/versions").text
    assert "Pin version 1" in page and "Pin version 3" not in page and "Unpin" not in page
    answer = browser.post("/page/versions/pin", data={"version": "1"})
    assert answer.status_code == 303 and asked == [{"pin": 1}]
    assert "Version 1 is pinned." in browser.get(answer.headers["location"]).text
    assert "Training continues." in browser.get(browser.post("/page/versions/pin").headers["location"]).text
    assert asked == [{"pin": 1}, {"pin": None}]
    view = browser.get("/page/versions/diff", params={"a": 1, "b": 2}).text
    assert "version 2 live: 2 descends from 1." in view
    assert "On the way to version 2" in view and "what is 2+2?</textarea>" in view
    found = browser.post("/page/versions/diff", data={"a": "1", "b": "2", "prompts": "one?\r\n\r\ntwo?"}).text
    assert "1 says &lt;one?&gt;" in found and "2 says &lt;two?&gt;" in found
    assert browser.get("/page/versions/diff", params={"a": 1, "b": "x"}).status_code == 400
