"""The gateway deletes a person's data: its own steps, those of the driver, and those left by a killed gateway."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from claw_base.run_folder import forgetting
from claw_base.run_folder.forgetting import Forgetting
from openclaw.forget.__main__ import main
from openclaw.gateway import forgetting as gateway_forgetting
from openclaw.types import Judgement, SampleDraft, Vote
from tests.fakes.marked_words import files_with
from tests.fakes.running_gateway import KEY, RunningGateway, StartGateway
from tests.openclaw.gateway.test_trained_adapters import PER_KEY, ask, publish


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Returns the run folder of a run with a driver."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "arguments.json").write_text(json.dumps({"train_adapters": "per-key"}))
    return folder


@pytest.fixture
def gateway(start_gateway: StartGateway, run_dir: Path) -> RunningGateway:
    found = start_gateway(run_dir=str(run_dir), **PER_KEY)
    found.says("hello there")
    return found


def driver(run_dir: Path, seen: list[Forgetting]) -> threading.Thread:
    """Acts as a driver once."""

    def work() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for one in forgetting.waiting(run_dir):
                if one.rows_deleted:
                    seen.append(one)
                    forgetting.finish(run_dir, one.person)
                    return
            time.sleep(0.01)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_the_driver_resets_the_adapter_after_the_rows_are_deleted(
    gateway: RunningGateway, run_dir: Path
) -> None:
    turn = gateway.turn(ask(gateway, "ada").json()["id"])
    ask(gateway, "bob")
    seen: list[Forgetting] = []
    thread = driver(run_dir, seen)
    answer = gateway.http.delete("/admin/persons/ada/content").json()
    thread.join(20)
    assert (answer["status"], answer["adapter"], answer["shared"]) == ("done", "ada", [])
    assert answer["deleted"]["turns"] == 1
    assert [(one.person, one.adapter) for one in seen] == [("ada", "ada")]
    assert gateway.store.turns.get(turn.id) is None
    assert [one["person"] for one in gateway.store.people.listing()] == ["bob"]
    assert list((run_dir / "forgetting").iterdir()) == [], "not even a mark"
    assert gateway.http.delete("/admin/persons/ada/content").status_code == 404


def test_the_base_answers_while_the_adapter_waits_for_the_driver(
    gateway: RunningGateway, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_forgetting, "WAIT_SECONDS", 0.2)
    publish(run_dir, "ada", 4)
    live = gateway.app.state.gateway.trained
    assert live.live(live.adapters["ada"]).version == 4
    ask(gateway, "ada")
    answer = gateway.http.delete("/admin/persons/ada/content").json()
    assert answer["status"] == "waiting" and forgetting.is_waiting(run_dir, "ada")
    assert live.live(live.adapters["ada"]).is_base
    forgetting.finish(run_dir, "ada")
    assert live.live(live.adapters["ada"]).version == 4


@pytest.mark.parametrize("trained", ["per-key", "bob", None])
@pytest.mark.parametrize("has_turns", [True, False])
def test_an_adapter_goes_with_its_person_after_the_key_was_removed(
    start_gateway: StartGateway, gateway: RunningGateway, run_dir: Path, trained: str | None, has_turns: bool
) -> None:
    publish(run_dir, "ada", 4)
    if has_turns:
        ask(gateway, "ada")
        ask(gateway, "bob")
    gateway.stop()
    later = start_gateway(run_dir=str(run_dir), api_keys="bob=key-bob", train_adapters=trained)
    later.store.versions.weights_live(0, 4, None, False, "/v4", "sum4", trainer="default::ada")
    seen: list[Forgetting] = []
    driver(run_dir, seen)
    answer = later.http.delete("/admin/persons/ada/content").json()
    if has_turns or trained == "per-key":
        assert (answer["adapter"], answer["shared"]) == ("ada", [])
        assert [(one.person, one.adapter) for one in seen] == [("ada", "ada")]
    else:
        assert answer["error"]["code"] == "not_found", "nothing tells whose adapter it is"


def test_an_adapter_that_answered_others_is_not_a_persons_own(
    start_gateway: StartGateway, run_dir: Path
) -> None:
    names = {"run_dir": str(run_dir), "train_adapters": "ada"}
    shared = start_gateway(api_keys="bob=key-bob", **names)
    shared.says("hello there")
    publish(run_dir, "ada", 1)
    ask(shared, "bob", f"{shared.app.state.gateway.model_name}:ada")
    sent: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "user": "ada", "max_tokens": 5}
    assert shared.http.post("/v1/chat/completions", json=sent).status_code == 200
    shared.stop()
    later = start_gateway(run_dir=str(run_dir), api_keys="bob=key-bob", train_adapters="per-key")
    driver(run_dir, [])
    assert later.http.delete("/admin/persons/ada/content").json()["adapter"] is None


def test_the_next_gateway_finishes_a_deletion_of_a_killed_one(
    start_gateway: StartGateway, gateway: RunningGateway, run_dir: Path
) -> None:
    ask(gateway, "ada")
    ask(gateway, "bob")
    gateway.stop()
    forgetting.write(run_dir, Forgetting("ada", "ada"))
    second = start_gateway(run_dir=str(run_dir), **PER_KEY)
    second.wait_for(lambda: [one["person"] for one in second.store.people.listing()] == ["bob"])
    second.wait_for(lambda: [one.rows_deleted for one in forgetting.waiting(run_dir)] == [True])


def test_a_deletion_in_progress_is_not_continued_by_the_same_gateway(
    start_gateway: StartGateway, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_forgetting, "LOOK_SECONDS", 0.01)
    gateway = start_gateway(run_dir=str(run_dir), **PER_KEY)
    gateway.says("hello there")
    ask(gateway, "ada")
    recorder = gateway.app.state.gateway.recorder
    deletions: list[str] = []
    delete_person = recorder.delete_person

    async def slow(person: str, adapter: str | None) -> Any:
        deletions.append(person)
        await asyncio.sleep(0.3)
        return await delete_person(person, adapter)

    monkeypatch.setattr(recorder, "delete_person", slow)
    seen: list[Forgetting] = []
    thread = driver(run_dir, seen)
    answer = gateway.http.delete("/admin/persons/ada/content")
    thread.join(20)
    assert (answer.status_code, answer.json()["deleted"]["turns"]) == (200, 1)
    assert deletions == ["ada"] and not forgetting.is_waiting(run_dir, "ada"), "the driver is not asked again"


def test_a_request_survives_the_end_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver removes the temporary file of the next request with it."""
    forgetting.write(tmp_path, Forgetting("ada", "ada"))
    write_json, calls = forgetting.write_json, []

    def interrupted(path: Path, content: object) -> None:
        calls.append(path)
        if len(calls) == 1:
            forgetting.finish(tmp_path, "ada")
            raise FileNotFoundError
        write_json(path, content)

    monkeypatch.setattr(forgetting, "write_json", interrupted)
    forgetting.write(tmp_path, Forgetting("ada", "ada", rows_deleted=True))
    assert [one.rows_deleted for one in forgetting.waiting(tmp_path)] == [True]


def test_the_command_prints_the_rollback_for_shared_weights(
    start_gateway: StartGateway,
    run_dir: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENCLAW_ADMIN_KEY", KEY)
    gateway = start_gateway(run_dir=str(run_dir), api_keys="ada=key-ada,bob=key-bob")
    gateway.says("hello there")
    store = gateway.store
    store.versions.weights_live(-1, 0, None, True, "/v0", "sum0")
    for rollout_id, name in enumerate(("bob", "ada", "bob")):
        turn = gateway.turn(ask(gateway, name).json()["id"])
        store.turns.answer(turn.id, [{"role": "user", "content": "thanks"}])
        judged = Judgement(kind="eval", score=1.0, votes=[Vote(score=1)], judge="test")
        assert store.judgements.finish(turn.id, [judged], SampleDraft(turn_id=turn.id, reward=1.0))
        store.samples.lease(rollout_id, 9)
        store.versions.weights_live(rollout_id, rollout_id + 1, rollout_id, False, "/v", "sum")
    seen: list[Forgetting] = []
    driver(run_dir, seen)
    assert main(["ada", "--url", gateway.url]) == 0
    told = capsys.readouterr().out
    assert "1 turns" in told and "adapter" not in told
    assert "learned from 1 of these turns, first in version 2" in told
    assert "./claw versions rollback 1." in told and "2 version(s); 1 turn(s) of others" in told
    assert [(one.adapter, list(one.rollouts)) for one in seen] == [(None, [1, 2])]
    assert main(["ada", "--url", gateway.url]) == 1
    assert "there is no recorded data of person 'ada'" in capsys.readouterr().err


def test_without_a_run_only_the_rows_are_deleted(
    gateway: RunningGateway, start_gateway: StartGateway
) -> None:
    alone = start_gateway()
    alone.says("hello there")
    sent: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "user": "eve", "max_tokens": 5}
    assert alone.http.post("/v1/chat/completions", json=sent).status_code == 200
    answer = alone.http.delete("/admin/persons/eve/content").json()
    assert (answer["status"], answer["deleted"]["turns"]) == ("done", 1)


def test_a_single_preference_is_listed_and_forgotten(
    start_gateway: StartGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = start_gateway(memory=True)
    gateway.says("hello there")
    sent: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "user": "eve", "max_tokens": 5}
    turn = gateway.turn(gateway.http.post("/v1/chat/completions", json=sent).json()["id"])
    gateway.store.turns.answer(turn.id, [{"role": "user", "content": "shorter"}])
    hint = Judgement(kind="hint", score=1.0, votes=[Vote(score=1)], hints=["Be brief."], judge="test")
    assert gateway.store.judgements.finish(turn.id, [hint], SampleDraft(turn_id=turn.id, reward=0.0))
    assert main(["eve", "--wishes", "--url", gateway.url]) == 0
    assert capsys.readouterr().out.split() == ["1", "Be", "brief."]
    assert main(["bob", "--wish", "1", "--url", gateway.url]) == 1
    assert main(["eve", "--wish", "1", "--url", gateway.url]) == 0
    assert "wish 1 is forgotten" in capsys.readouterr().out
    assert gateway.store.memory.wishes() == [] and gateway.store.memory.asked_last(9) == {}
    assert gateway.store.turns.get(turn.id) is not None


def test_the_words_of_feedback_go_with_a_preference(start_gateway: StartGateway) -> None:
    gateway = start_gateway(memory=True)
    gateway.says("hello there")
    sent: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "user": "eve", "max_tokens": 5}
    turn = gateway.turn(gateway.http.post("/v1/chat/completions", json=sent).json()["id"])
    rated = {"completion_id": turn.completion_id, "user": "eve", "score": -1, "text": "no lists, bluewhale"}
    assert gateway.http.post("/v1/feedback", json=rated).status_code == 200
    judgements = gateway.store.feedback.judgements_of(turn.id)
    by_rules = Judgement(kind="eval", score=1.0, votes=[Vote(score=1)], judge="rules")
    assert gateway.store.judgements.finish(
        turn.id, [by_rules, *judgements], SampleDraft(turn_id=turn.id, reward=-1.0)
    )
    [wish] = gateway.store.memory.wishes("eve")
    assert main(["eve", "--wish", str(wish.id), "--url", gateway.url]) == 0
    assert [one.judge for one in gateway.store.judgements.of_turn(turn.id)] == ["rules"]
    assert files_with(gateway.buffer, ["bluewhale"], {}) == {}
    assert gateway.http.get(f"/page/turn?id={turn.completion_id}").status_code == 200
    again = gateway.http.post("/v1/feedback", json={**rated, "text": "shorter"})
    assert (again.status_code, again.json()["status"]) == (200, "recorded"), "it is not judged again"
    verdict = {"id": turn.completion_id, "verdict": "good"}
    assert gateway.http.post("/page/turn/verdict", data=verdict).status_code == 303
    assert gateway.store.memory.wishes("eve") == []
