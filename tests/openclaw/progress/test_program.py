"""python -m openclaw.progress against a real gateway with a scripted engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw.progress.__main__ import NO_WISHES, main
from openclaw.store import RolloutStore
from openclaw.types import Drop, Judgement, Vote
from tests.fakes.chat_client import HELLO
from tests.fakes.running_gateway import KEY, RunningGateway, StartGateway
from tests.openclaw.gateway.test_trained_adapters import publish

WISH = "Shorter, please: one or two sentences."
LONG_REPLY = "This is a long story that goes on. " * 5


@pytest.fixture
def gateway(start_gateway: StartGateway, tmp_path: Path) -> RunningGateway:
    """Version 0 is live; there are no preferences."""
    gateway = start_gateway(run_dir=str(tmp_path))
    gateway.store.versions.weights_live(-1, 0, None, True, str(tmp_path), "sum-0")
    gateway.says(LONG_REPLY)
    return gateway


def learned(gateway: RunningGateway, person: str = "ada", wish: str = WISH) -> None:
    """Stores a complaint, and makes version 1 write one sentence."""
    answer = gateway.http.post("/v1/chat/completions", json={"messages": HELLO, "user": person})
    complain(gateway, answer.json()["id"], wish)
    if gateway.store.versions.live() == 0:
        gateway.store.versions.weights_live(0, 1, 0, False, "/gone", "sum-1")
    gateway.says("It depends.")
    gateway.engine.forget_prompts()


def complain(gateway: RunningGateway, completion_id: str, wish: str) -> None:
    """Stores the judgement for a complaint in the next message."""
    turn = gateway.turn(completion_id)
    gateway.store.turns.answer(turn.id, [{"role": "user", "content": wish}])
    found = [Judgement(kind="hint", score=1.0, votes=[Vote(score=1, hint=wish)], judge="test", hints=[wish])]
    assert gateway.store.judgements.finish(turn.id, found, Drop("test"))


def look(gateway: RunningGateway, *words: str) -> int:
    return main(["--url", gateway.url, "--api-key", KEY, "--sample", "1", *words])


def report(gateway: RunningGateway, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert look(gateway, "--json", *words) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def turns(gateway: RunningGateway) -> int:
    return len(gateway.http.get("/admin/turns").json()["data"])


def test_an_engine_that_holds_the_first_model_answers_before_and_now(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.engine.tries[0] = gateway.says(LONG_REPLY)
    learned(gateway)
    stored = turns(gateway)
    found = report(gateway, capsys)
    rows = {row["name"]: row for row in found["rows"]}
    assert (rows["wish_1"]["before"], rows["wish_1"]["now"]) == (0.0, 1.0)
    assert "sampled now" in found["base"] and "version 0" in found["prompted"]
    assert (found["live"], found["person"], found["wishes"][0]["text"]) == (1, "ada", WISH)
    assert turns(gateway) == stored, "a report is no talk"
    prompts = [gateway.tokenizer.decode(ids) for body in gateway.engine.tried for ids in body["prompts"]]
    assert sum(WISH in prompt for prompt in prompts) == len(prompts) / 2
    assert not any(WISH in gateway.tokenizer.decode(one["input_ids"]) for one in gateway.engine.requests)


def test_answers_of_version_0_are_stored_for_engines_with_one_set_of_weights(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert look(gateway) == NO_WISHES
    assert "no preferences are known yet" in capsys.readouterr().err
    learned(gateway)
    found = report(gateway, capsys)
    rows = {row["name"]: row for row in found["rows"]}
    assert (rows["wish_1"]["before"], rows["wish_1"]["now"]) == (0.0, 1.0)
    assert "recorded on" in found["base"] and "live model" in found["prompted"]
    assert [one["live"] for one in found["earlier"]] == [0]
    kept = sorted((tmp_path / "progress").glob("*.json"))
    assert len(kept) == 2
    assert WISH not in kept[1].read_text() and "ada" not in kept[1].read_text(), "no words or names of people"
    assert look(gateway) == 0
    assert "earlier reports" in capsys.readouterr().out


def test_without_answers_of_the_first_model_the_report_states_it(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    learned(gateway)
    found = report(gateway, capsys)
    assert found["base"].startswith("unknown") and "one set of weights" in found["base"]
    assert {row["before"] for row in found["rows"]} == {None}


def test_a_preference_may_be_given_for_methods_without_hints(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.engine.tries[0] = gateway.says(LONG_REPLY)
    gateway.store.versions.weights_live(0, 1, 0, False, "/gone", "sum-1")
    assert look(gateway, "--wish", "Shorter, please.", "--wish", "Say hello, and be kind.") == 0
    shown = capsys.readouterr().out
    assert 'wish 2: "Say hello, and be kind."' in shown and "wish 1 held out (brief)" in shown


def test_one_persons_preferences_are_not_mixed_with_anothers(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    learned(gateway)
    learned(gateway, "bob", "No lists, please.")
    assert [one["text"] for one in report(gateway, capsys)["wishes"]] == ["No lists, please."]
    assert [one["text"] for one in report(gateway, capsys, "--person", "ada")["wishes"]] == [WISH]
    assert look(gateway, "--person", "eve") == NO_WISHES
    assert "no preferences of eve are known; there are preferences of: ada, bob" in capsys.readouterr().err


def test_in_a_run_with_adapters_the_adapter_of_the_key_is_measured(
    start_gateway: StartGateway,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENCLAW_ADMIN_KEY", KEY)
    gateway = start_gateway(
        run_dir=str(tmp_path), api_keys="ada=key-ada,bob=key-bob", train_adapters="per-key"
    )
    gateway.store.versions.weights_live(-1, 0, None, True, str(tmp_path), "sum-0")
    gateway.engine.tries[0] = gateway.says(LONG_REPLY)
    headers = {"Authorization": "Bearer key-ada"}
    sent = {"messages": HELLO, "max_tokens": 5}
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=sent, headers=headers, timeout=20)
    complain(gateway, answer.json()["id"], WISH)
    publish(tmp_path, "ada", 1)
    gateway.store.versions.weights_live(0, 1, 0, False, "/gone", "sum-1", trainer="trainer::ada")
    gateway.says("It depends.")
    gateway.engine.forget_prompts()
    gateway.engine.requests.clear()
    found = report(gateway, capsys, "--api-key", "key-ada")
    rows = {row["name"]: row for row in found["rows"]}
    assert (found["live"], rows["wish_1"]["before"], rows["wish_1"]["now"]) == (1, 0.0, 1.0)
    assert found["model"].endswith(":ada") and "sampled now" in found["base"]
    assert {one.get("lora_path") for one in gateway.engine.requests} == {"ada"}
    assert len(list((tmp_path / "policies" / "ada" / "progress").iterdir())) == 1
    assert not (tmp_path / "progress").exists(), "other people's reports do not list it"
    assert report(gateway, capsys, "--api-key", "key-ada", "--adapter", "ada")["earlier"] != []
    assert look(gateway, "--api-key", "key-bob") == NO_WISHES
    assert "no preferences are known yet" in capsys.readouterr().err
    assert look(gateway) == 1 and "the client key is served by the base model" in capsys.readouterr().err
    assert look(gateway, "--api-key", "key-bob", "--adapter", "ada") == 1
    assert "--adapter ada: no such adapter" in capsys.readouterr().err


def test_a_run_without_preferences_is_not_queried(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.store.versions.weights_live(0, 1, 0, False, "/gone", "sum-1")
    assert look(gateway) == NO_WISHES
    assert not gateway.engine.requests and "no preferences are known" in capsys.readouterr().err


def test_replies_that_end_inside_the_reasoning_are_not_measured(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some templates ignore that the command disables reasoning."""
    gateway.says("<think>" + "The user asks, so let me think. " * 99)
    assert look(gateway, "--wish", WISH) == 1
    told = capsys.readouterr().err
    assert "replies end inside the reasoning, after 160 tokens (--max-tokens)" in told
    gateway.says("<think>Easy.</think>" + LONG_REPLY)
    gateway.engine.forget_prompts()
    assert look(gateway, "--wish", WISH) == 0


def test_errors_are_one_line(start_gateway: StartGateway, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "http://127.0.0.1:9"]) == 1
    assert "check that the server is running" in capsys.readouterr().err
    gateway = start_gateway(admin_key="admin-key")
    assert look(gateway) == 1
    assert "OPENCLAW_ADMIN_KEY" in capsys.readouterr().err
    assert main(["--url", gateway.url, "--api-key", "wrong"]) == 1
    assert "SGLANG_API_KEY" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["--sample", "-1"])
    assert ended.value.code == 2


def test_a_server_without_a_store_is_reported(
    start_gateway: StartGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = start_gateway(enable_rl_intercept=False, rl_buffer_dir=None)
    assert look(gateway) == 1
    assert "does not record" in capsys.readouterr().err


def test_the_routes_reject_invalid_input(gateway: RunningGateway) -> None:
    for body in ({"prompts": []}, {"prompts": ["text"]}, {"prompts": 3}, {"prompts": [{}] * 65}):
        assert gateway.http.post("/admin/progress/first", json=body).status_code == 400
    hello = {"messages": HELLO}
    answer = gateway.http.post("/admin/progress/first", json={"prompts": [hello], "max_tokens": 513})
    assert answer.status_code == 400 and "max_tokens" in answer.json()["error"]["message"]
    assert gateway.http.post("/admin/progress/first", json={"prompts": [hello]}).status_code == 409


def test_files_that_are_not_reports_are_skipped(gateway: RunningGateway, tmp_path: Path) -> None:
    (tmp_path / "progress").mkdir()
    (tmp_path / "progress" / "0.json").write_text("{")
    (tmp_path / "progress" / "1.json").write_text("[]")
    assert gateway.http.get("/admin/progress").json()["reports"] == []


def test_the_newest_preferences_have_their_time(store: RolloutStore, make_turn: Any) -> None:
    turn = store.turns.record(make_turn(person="ada"))
    store.turns.answer(turn.id, [{"role": "user", "content": WISH}])
    found = [Judgement(kind="hint", score=1.0, votes=[Vote(score=1, hint=WISH)], judge="test", hints=[WISH])]
    store.judgements.finish(turn.id, found, Drop("test"))
    [said] = store.memory.asked_last(3)["ada"]
    assert said.text == WISH and said.at > 0
