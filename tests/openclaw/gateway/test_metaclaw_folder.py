"""A folder in MetaClaw-Bench's format, played against a real gateway with a scripted engine."""

from __future__ import annotations

import json

import pytest

from openclaw_test.evaluation.metaclaw import __main__ as program
from openclaw_test.evaluation.metaclaw.playing import TOOLS
from openclaw_test.people.agents import AgentError, ToolModel, TooLong
from tests import ROOT
from tests.fakes.running_gateway import KEY, RunningGateway

FOLDER = ROOT / "tests" / "openclaw_test" / "metaclaw_bench"


def test_the_program_plays_a_folder_of_tasks_against_a_gateway(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_API_KEY", KEY)
    gateway.says(r"\bbox{A,D}")
    assert program.main([str(FOLDER), "--url", f"{gateway.url}/v1", "--days", "day01"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["multi_choice"]["exact"] == 1.0 and found["file_check"]["score"] == 0.0
    assert found["days"][0]["version"] is not None
    turns = gateway.wait_for(lambda: gateway.http.get("/admin/turns").json()["data"])
    assert [turn["turn_index"] for turn in turns] == [2, 1, 0]
    assert program.main([str(FOLDER), "--url", f"{gateway.url}/v1", "--no-train", "--tools", "off"]) == 0
    assert len(gateway.http.get("/admin/turns").json()["data"]) == 3
    assert program.main([str(FOLDER), "--url", gateway.url, "--days", "day09"]) == 1
    assert "there are day01, day02" in capsys.readouterr().err


def test_a_full_model_context_is_recognised_by_its_error(gateway: RunningGateway) -> None:
    model = ToolModel(gateway.url, KEY, 0, 8)
    gateway.says("hi")
    assert model.takes(TOOLS)
    with pytest.raises(TooLong):
        model.reply("s", [{"role": "user", "content": "word " * 100_000}], None)
    with pytest.raises(AgentError):
        ToolModel("http://127.0.0.1:9", KEY, 0, 8).reply("s", [{"role": "user", "content": "hi"}], None)
