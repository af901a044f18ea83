"""`export --format atif`: the format of other trajectory viewers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw.store import RolloutStore
from openclaw.store.__main__ import main
from openclaw.store.history.reading import read_histories
from openclaw.types import Judgement, NewTurn, SampleDraft, Vote

AGENT_ONLY = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}
STEP = {*AGENT_ONLY, "step_id", "timestamp", "source", "message", "observation", "is_copied_context", "extra"}
METRICS = {
    "prompt_tokens",
    "completion_tokens",
    "prompt_token_ids",
    "completion_token_ids",
    "logprobs",
    "extra",
}
CALL = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls"}'}}


@pytest.fixture
def talk(store: RolloutStore, make_turn: Callable[..., NewTurn]) -> RolloutStore:
    """Two turns: a call with its result, then a judged answer."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Which files?"},
    ]
    called = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "c", "content": "a.txt"}
    first = store.turns.record(make_turn(messages=messages, response_message=called))
    second = store.turns.record(make_turn(messages=[*messages, called, result]))
    store.turns.answer(first.id, [result])
    store.turns.answer(second.id, [{"role": "user", "content": "Thanks!"}])
    judgement = Judgement(kind="eval", score=1.0, votes=[Vote(score=1)], judge="test")
    store.judgements.finish(second.id, [judgement], SampleDraft(turn_id=second.id, reward=1.0))
    return store


def _exported(capsys: pytest.CaptureFixture[str], folder: Path, *args: str) -> Any:
    assert main(["export", "--rl-buffer-dir", str(folder), "--format", "atif", *args]) == 0
    return json.loads(capsys.readouterr().out)


def _check(document: dict[str, Any]) -> None:
    """Checks the rules of ATIF 1.7 like Harbor's own models."""
    assert document["schema_version"] == "ATIF-v1.7" and {"name", "version"} <= document["agent"].keys()
    for number, step in enumerate(document["steps"], 1):
        assert step["step_id"] == number and step.keys() <= STEP and isinstance(step["message"], str)
        assert step["source"] == "agent" or not step.keys() & AGENT_ONLY
        assert step.get("metrics", {}).keys() <= METRICS
        calls = {call["tool_call_id"] for call in step.get("tool_calls", [])}
        results = step.get("observation", {"results": []})["results"]
        assert {one["source_call_id"] for one in results} <= calls


def test_a_session_is_a_trajectory_with_ids_log_probs_and_reward(
    talk: RolloutStore, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = _exported(capsys, Path(location))
    _check(document)
    assert [step["source"] for step in document["steps"]] == ["system", "user", "agent", "agent", "user"]
    called, told = document["steps"][2:4]
    assert called["observation"]["results"] == [{"source_call_id": "c", "content": "a.txt"}]
    assert called["tool_calls"][0]["arguments"] == {"cmd": "ls"}
    turn = talk.turns.of_sessions(["s"], 9)[0]["s"][1]
    assert told["metrics"]["completion_token_ids"] == turn.completion_ids
    assert told["metrics"]["logprobs"] == turn.completion_log_probs
    assert (told["extra"]["score"], told["extra"]["reward"]) == (1.0, 1.0)


def test_a_folder_export_writes_one_importable_file_per_session(
    talk: RolloutStore,
    location: str,
    tmp_path: Path,
    make_turn: Callable[..., NewTurn],
    capsys: pytest.CaptureFixture[str],
) -> None:
    talk.turns.record(make_turn(session_id="../../etc/b", person="ann"))
    talk.turns.record(make_turn(session_id="_..=etc=B", person="bob"))
    assert _exported(capsys, Path(location), "--output", str(tmp_path / "out")) == {"trajectories": 3}
    files = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert (
        files == ["_.._etc_B-2.json", "_.._etc_b.json", "s.json"]
        and (tmp_path / "out" / "s.json").stat().st_mode & 0o777 == 0o600
    )
    turns = {one.id: one.turns for one in read_histories(tmp_path / "out").sessions}
    assert [turn.next_state[0]["content"] for turn in turns["s"]] == ["a.txt", "Thanks!"] and len(
        turns["../../etc/b"]
    ) == 1
    only = _exported(capsys, Path(location), "--person", "ann")
    assert only["session_id"] == "../../etc/b"
