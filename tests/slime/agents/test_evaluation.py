"""Tests held-out tasks: their selection, the record of each attempt, and the report of a run."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime.agents.report import closing_line, curve, of_dataset, summary, table
from slime.agents.scores import change, estimate, read_evaluations
from slime.agents.splits import split, write_split
from slime.errors import ConfigError, EnvironmentAway
from slime.rollout.evaluation import evaluate
from slime.rollout.metrics import attempt_rows, episode_metrics, write_attempts
from slime.types import Sample, SampleStatus
from tests.fakes.fixtures import ParseArgs
from tests.fakes.rollout_engine import FakeEngine
from tests.slime.rollout.conftest import fake, make_args, model  # noqa: F401

if TYPE_CHECKING:
    from slime.arguments import Arguments


@given(names=st.sets(st.text(min_size=1), min_size=2, max_size=40), share=st.floats(0.01, 0.5))
def test_a_split_is_disjoint_complete_and_independent_of_order(names: set[str], share: float) -> None:
    found = split(names, share)
    assert set(found.train) | set(found.held_out) == names and not set(found.train) & set(found.held_out)
    assert len(found.held_out) == max(1, round(share * len(names)))
    assert split([*sorted(names, reverse=True), *names], share) == found


def test_held_out_tasks_are_selected_by_the_hash_of_seed_and_name() -> None:
    names = [f"task-{number}" for number in range(10)]
    ranked = sorted(
        names, key=lambda name: hashlib.sha256(f"terminal-evolution-v1:{name}".encode()).hexdigest()
    )
    assert set(split(names, seed="terminal-evolution-v1").held_out) == set(ranked[:2])


def test_all_rows_of_a_task_are_on_one_side_of_a_split(tmp_path: Path) -> None:
    rows = [{"metadata": {"task_name": f"t{number % 5}"}, "input": str(number)} for number in range(10)]
    source = tmp_path / "tasks.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = write_split(source, tmp_path / "out", "task_name")
    parts = [
        [json.loads(line) for line in (tmp_path / "out" / name).read_text().splitlines()]
        for name in ("train.jsonl", "heldout.jsonl")
    ]
    assert sorted(parts[0] + parts[1], key=lambda row: int(row["input"])) == rows
    assert {row["metadata"]["task_name"] for row in parts[1]} == set(found.held_out) and len(parts[1]) == 2
    manifest = json.loads((tmp_path / "out" / "split_manifest.json").read_text())
    assert manifest["heldout"] == list(found.held_out) and manifest["seed"] == "agents-v1"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [({"input": "x"}, "row 1 has no column task_name"), ({"task_name": "a"}, "leaves none")],
)
def test_too_few_tasks_for_a_split_are_rejected_in_one_line(tmp_path: Path, row: Any, complaint: str) -> None:
    source = tmp_path / "tasks.jsonl"
    source.write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match=complaint):
        write_split(source, tmp_path, "task_name")


def test_the_interval_is_wilsons_and_stays_between_0_and_1() -> None:
    some = estimate([1.0] * 8 + [0.0] * 2)
    assert (some.value, some.low, some.high) == (
        pytest.approx(0.8),
        pytest.approx(0.4902, abs=1e-4),
        pytest.approx(0.9433, abs=1e-4),
    )
    assert estimate([1.0] * 10).high == pytest.approx(1.0) and 0.7 < estimate([1.0] * 10).low < 0.75
    assert estimate([0.0] * 4).low == 0.0 and estimate([]).tasks == 0


def attempt(index: int, success: bool | None, **episode: object) -> Sample:
    sample = Sample(group_index="held/0", index=f"held/0/{index}", metadata={"task_name": f"t{index // 2}"})
    sample.metadata["episode"] = {"turns": 2, "tool_calls": 1, **episode}
    if success is None:
        sample.status = SampleStatus.FAILED
        sample.metadata["failure"] = {"reason": "environment", "message": "gone"}
    else:
        sample.status, sample.reward = SampleStatus.COMPLETED, {"score": 0.4, "acc": float(success)}
    return sample


def write(run: Path, rollout_id: int, *found: bool | None, dataset: str = "held", **episode: object) -> None:
    """Writes two attempts for each task."""
    samples = [attempt(index, success, **episode) for index, success in enumerate(found)]
    write_attempts(str(run), attempt_rows(rollout_id, dataset, 2, samples, [0.4] * len(samples)))


def test_pass_rates_are_over_tasks_without_infrastructure_failures(tmp_path: Path) -> None:
    write(tmp_path, 0, True, False, False, False, None, True, None, None)
    [found] = read_evaluations(tmp_path)
    assert (found.tasks, found.attempts, found.failed) == (4, 2, 3)
    assert found.solved == {"t0": (2, 1), "t1": (2, 0), "t2": (1, 1)}
    assert found.pass_at(1).value == pytest.approx(0.5) and found.pass_at(1).tasks == 3
    assert found.pass_at(2).value == pytest.approx(0.5) and found.pass_at(2).tasks == 2


def test_repeated_evaluations_count_once_and_incomplete_lines_are_skipped(tmp_path: Path) -> None:
    write(tmp_path, 0, False, False)
    with (tmp_path / "evaluations.jsonl").open("a") as file:
        file.write('{"rollout_id": 0, "dat')
    write(tmp_path, 0, True, True)
    [found] = read_evaluations(tmp_path)
    assert found.solved == {"t0": (2, 2)}


def test_the_closing_line_reports_the_effect_of_training(tmp_path: Path) -> None:
    write(tmp_path, 0, False, False, True, False, tool_calls=0)
    write(tmp_path, 4, True, True, True, None)
    metrics = [
        {"step": 0, "time": 100.0, "perf/eval_time": 10.0},
        {"step": 0, "time": 130.0, "rollout/batch_size": 8, "rollout/episode/environments_away": 2.0},
        {"step": 1, "time": 140.0, "rollout/batch_size": 20, "rollout/trajectories": 8},
        {"step": 1, "time": 160.0, "rollout/batch_size": 8, "rollout/error_cat/environment": 1},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    assert json.loads(closing_line(tmp_path)) == {
        "pass_at_1_before": 0.25,
        "pass_at_1_after": 1.0,
        "held_out_tasks": 2,
        "tool_use_after": 1.0,
        "episodes": 16,
        "infra_failures": 4,
        "seconds": 70.0,
    }
    assert summary(tmp_path, seconds=5.0)["seconds"] == 5.0


def test_a_run_stopped_before_its_second_evaluation_reports_no_effect(tmp_path: Path) -> None:
    write(tmp_path, 0, True, False)
    found = summary(tmp_path)
    assert found["pass_at_1_before"] == 0.5
    assert found["pass_at_1_after"] is None and found["tool_use_after"] is None


def test_the_table_and_the_plot_show_every_evaluation_and_the_change(tmp_path: Path) -> None:
    write(tmp_path, 0, False, False, True, False)
    write(tmp_path, 4, True, True, True, True)
    evaluations = of_dataset(tmp_path)
    assert change(*evaluations).value == pytest.approx(0.75)
    text = table(evaluations)
    assert (
        "| 0 | 0.25 [" in text and "| 4 | 1.00 [" in text and "pass@2" in text and "changed by 0.75" in text
    )
    drawing = ElementTree.fromstring(curve(evaluations))
    assert [
        len(line.get("points", "").split()) for line in drawing.iter() if line.tag.endswith("polyline")
    ] == [2, 2]
    plot = tmp_path / "plots" / "curve.svg"
    command = [sys.executable, "-m", "slime.agents.report", str(tmp_path), "--plot", str(plot)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == text + "\n"
    assert plot.read_text() == curve(evaluations)
    command[-2:] = ["--line", "--seconds", "61"]
    line = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert line == closing_line(tmp_path, seconds=61.0) + "\n" and json.loads(line)["seconds"] == 61


def test_a_missing_file_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--eval-interval"):
        closing_line(tmp_path)
    write(tmp_path, 0, True, True)
    write(tmp_path, 0, True, True, dataset="other")
    with pytest.raises(ConfigError, match="held, other; choose"):
        closing_line(tmp_path)
    assert json.loads(closing_line(tmp_path, "other"))["pass_at_1_before"] == 1.0


async def solves_even_tasks(args: Arguments, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    if sample.metadata["task_name"] == "t3":
        raise EnvironmentAway("gone")
    sample.tokens, sample.status = [1, 2], SampleStatus.COMPLETED
    sample.append_response_tokens([3], [-1.0])
    solved = int(sample.metadata["task_name"][1:]) % 2 == 0
    sample.reward = {"score": solved - 0.1, "acc": float(solved)}
    sample.metadata["episode"] = {"turns": 3, "tool_calls": 2, "parse_errors": 0, "spans": [[0, 1]]}
    return sample


def test_an_evaluation_writes_a_row_for_each_attempt(
    make_args: ParseArgs,  # noqa: F811
    fake: FakeEngine,  # noqa: F811
    tmp_path: Path,
) -> None:
    rows = [{"input": "x", "metadata": {"task_name": f"t{number}"}} for number in range(4)]
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [
        "--eval-prompt-data",
        "held",
        str(held_out),
        "--n-samples-per-eval-prompt",
        "2",
        "--reward-key",
        "score",
    ]
    words += [
        "--custom-generate-function-path",
        f"{__name__}.solves_even_tasks",
        "--rollout-max-attempts",
        "1",
    ]
    args = make_args(rows, *words, rm=None)
    metrics = evaluate(args, 6).metrics
    assert metrics is not None and metrics["eval/held/pass@1"] == 0.5, "by acc, not by the score"
    found = [json.loads(line) for line in (Path(args.run_dir) / "evaluations.jsonl").read_text().splitlines()]
    assert [row["success"] for row in found] == [True, True, False, False, True, True, None, None]
    assert found[1] == {
        "rollout_id": 6,
        "dataset": "held",
        "task_id": "t0",
        "row": 0,
        "attempt_id": 1,
        "status": "completed",
        "success": True,
        "reward": 0.9,
        "steps": 3,
        "tool_calls": 2,
        "parse_errors": 0,
        "response_len": 1,
        "environments_away": 0,
    }
    assert found[6]["failure"] == "environment"


def test_metrics_of_episodes_are_counted_by_trajectory() -> None:
    samples = [attempt(0, True, turns=4), attempt(1, False, turns=2, tool_calls=0)]
    samples += [Sample(group_index="held/0", index="held/0/1", metadata=samples[1].metadata)]
    samples[0].metadata["environments_away"] = 1
    assert episode_metrics(samples) == {
        "rollout/episode/turns": 3.0,
        "rollout/episode/tool_calls": 0.5,
        "rollout/episode/parse_errors": 0.0,
        "rollout/episode/tool_use": 0.5,
        "rollout/episode/environments_away": 1.0,
    }
    assert episode_metrics([Sample(metadata={})]) == {}
