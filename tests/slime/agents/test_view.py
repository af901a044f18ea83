"""Tests stored trajectories of a run, displayed in the terminal and written in Harbor's format."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slime import replay
from slime.agents import Start
from slime.agents.conversation import continuation, opening
from slime.agents.recorded import read_run
from slime.agents.view import heading, main, shown
from slime.errors import ConfigError
from slime.types import Sample, SampleStatus
from tests import MODEL
from tests.slime.agents.scripted import END, TOKENIZER

CALL = '<tool_call>\n{"name": "run", "arguments": {"code": "6 * 7"}}\n</tool_call>'


def trajectory(index: int, solved: bool, per_turn: bool = False) -> list[Sample]:
    """Returns a call, its result and an answer, in one sample or in two."""
    first = TOKENIZER.encode(CALL + END)
    tool = continuation(TOKENIZER, [{"role": "tool", "content": "42"}])
    second = TOKENIZER.encode(f"It is 42.{END}")
    start = opening(TOKENIZER, Start([{"role": "user", "content": "What is 6 * 7?"}]))
    verdicts = [{"step_index": step, "scores": [1, None], "mean_score": 1.0 - step} for step in range(2)]

    def begun(tokens: list[int]) -> Sample:
        sample = Sample(group_index=0, index=index, prompt="What is 6 * 7?", tokens=list(tokens))
        sample.metadata = {
            "task_name": "product",
            "episode": {"turns": 2, "tool_calls": 1, "parse_errors": 0},
        }
        sample.reward, sample.status = {"score": 0.9, "acc": float(solved)}, SampleStatus.COMPLETED
        return sample

    one = begun(start)
    one.append_response_tokens(first, [-0.5] * len(first), True, 3)
    if not per_turn:
        one.append_response_tokens(tool, None, False)
        one.append_response_tokens(second, [-0.25] * len(second), True, 4)
        one.metadata |= {"prm": {"steps": verdicts}, "step_wise": {"step_scores": [1.0, None]}}
        return [one]
    two = begun(start + first + tool)
    two.append_response_tokens(second, [-0.25] * len(second), True, 4)
    for place, sample in enumerate((one, two)):
        sample.metadata |= {
            "prm": {"steps": verdicts[place : place + 1]},
            "step_wise": {"step_scores": [[1.0], [None]][place]},
        }
    return [one, two]


def keep(run: Path, name: str, *samples: Sample) -> None:
    run.mkdir(exist_ok=True)
    pattern = str(run / "trajectories" / "{rollout_id}.json.gz")
    about = {"save_debug_rollout_data": pattern, "hf_checkpoint": str(MODEL)}
    (run / "arguments.json").write_text(json.dumps(about))
    number = int(name.removeprefix("eval_"))
    replay.save(pattern, number, list(samples), evaluation=name.startswith("eval_"))


@pytest.mark.parametrize("per_turn", [False, True], ids=["one sample", "one a turn"])
def test_a_trajectory_is_shown_as_turns_with_their_rewards(tmp_path: Path, per_turn: bool) -> None:
    samples = trajectory(7, True, per_turn)
    keep(tmp_path / "run", "2", *samples)
    records = tmp_path / "run" / "token_records"
    records.mkdir()
    rows = [{"sample": 7, "advantage": [1.5 if kept else None for kept in sample.mask]} for sample in samples]
    (records / "rollout-000002.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [found] = read_run(tmp_path / "run")
    text = shown(found)
    assert heading(found) in text
    assert heading(found) == (
        "rollout 2 · group 0 · sample 7 · task product · completed · score 0.9, acc 1 · 2 turns · 1 tool calls"
    )
    assert "What is 6 * 7?" in text and CALL in text
    assert "version 3, log-prob -0.500, step score 1, votes 1/-, advantage +1.500" in text
    assert "--- observation 1\n42\n" in text and text.endswith("It is 42.\n")
    assert found.turns[1].score is None and found.turns[1].advantage == 1.5


def test_the_command_selects_and_lists_trajectories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    keep(run, "0", *trajectory(1, False), *trajectory(2, True))
    keep(run, "eval_0", *trajectory(3, True))

    def said(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["view", str(run), *words])
        assert main() == 0
        return str(capsys.readouterr().out)

    assert [line.split(" · ")[2] for line in said("--list").splitlines()] == [
        "sample 3",
        "sample 1",
        "sample 2",
    ]
    assert [line.split(" · ")[2] for line in said("--list", "--no-solved").splitlines()] == ["sample 1"]
    assert said("--rollout", "eval_0").startswith("rollout eval_0 · group 0 · sample 3")
    assert said("--sample", "2").count("--- turn") == 2 and said("--most", "1").count("--- prompt") == 1


@pytest.mark.parametrize("per_turn", [False, True], ids=["one sample", "one a turn"])
def test_an_export_is_atif_with_ids_calls_and_tool_results(tmp_path: Path, per_turn: bool) -> None:
    samples = trajectory(7, True, per_turn)
    keep(tmp_path / "run", "2", *samples)
    command = [
        sys.executable,
        "-m",
        "slime.agents.view",
        str(tmp_path / "run"),
        "--atif",
        str(tmp_path / "out"),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == f"1 trajectories in {tmp_path / 'out'}\n"
    found = json.loads((tmp_path / "out" / "rollout-2-sample-7.json").read_text())
    assert found["schema_version"] == "ATIF-v1.7" and found["extra"]["reward"] == {"score": 0.9, "acc": 1.0}
    assert [(step["step_id"], step["source"]) for step in found["steps"]] == [
        (1, "user"),
        (2, "agent"),
        (3, "agent"),
    ]
    call = found["steps"][1]
    assert call["tool_calls"] == [
        {"tool_call_id": "call-1", "function_name": "run", "arguments": {"code": "6 * 7"}}
    ]
    assert call["observation"]["results"] == [{"source_call_id": "call-1", "content": "42"}]
    metrics = found["steps"][2]["metrics"]
    assert metrics["completion_token_ids"] == TOKENIZER.encode(f"It is 42.{END}")
    assert metrics["prompt_token_ids"] + metrics["completion_token_ids"] == samples[-1].tokens
    assert metrics["extra"] == {"weight_versions": [4]} and metrics["logprobs"][0] == -0.25


def test_a_run_without_stored_trajectories_names_the_flag(tmp_path: Path) -> None:
    (tmp_path / "arguments.json").write_text(json.dumps({"hf_checkpoint": str(MODEL)}))
    with pytest.raises(ConfigError, match="--save-debug-rollout-data"):
        list(read_run(tmp_path))
    with pytest.raises(ConfigError, match=r"arguments\.json"):
        list(read_run(tmp_path / "none"))
