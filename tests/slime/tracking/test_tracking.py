"""Tests the destinations of metrics, and the progress output."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from slime.arguments import Arguments
from slime.errors import ConfigError
from slime.tracking import Tracker
from slime.tracking.lines import beginning, evaluation_line, progress_line
from slime.tracking.terminal import Bar, Lines, display
from slime.utils.logging import log_to_file


def arguments(run_dir: Path, **changes: object) -> Arguments:
    values: dict[str, Any] = {"run_dir": str(run_dir), "tensorboard_dir": str(run_dir / "tensorboard")}
    return Arguments(**(values | changes))


def test_every_metric_is_in_the_file_and_in_tensorboard_at_its_rollout(tmp_path: Path) -> None:
    for rollout_id in (0, 1):
        tracker = Tracker(arguments(tmp_path))  # a restarted driver continues in the same file
        tracker.log(rollout_id, {"train/loss": 0.5 + rollout_id, "rollout/raw_reward": float("nan")})
        tracker.log_evaluation(rollout_id + 1, {"eval/arithmetic": 0.25})
        tracker.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 1, 2]
    assert lines[0]["train/loss"] == 0.5 and lines[0]["rollout/raw_reward"] is None
    assert lines[3]["eval/arithmetic"] == 0.25
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    found = [
        (tensor.step, round(float(tensor.tensor_proto.float_val[0]), 3))
        for tensor in events.Tensors("train/loss")
    ]
    assert found == [(0, 0.5), (1, 1.5)]


def _rows(run_dir: Path) -> list[tuple[int, float]]:
    lines = tmp.splitlines() if (tmp := (run_dir / "metrics.jsonl").read_text()) else []
    return [(found["step"], found["train/loss"]) for found in map(json.loads, lines)]


ROW = {"train/loss": 0.5, "perf/train_time": 1.0}


@pytest.mark.parametrize("at_the_signal", [True, False])
def test_the_row_of_a_live_version_not_logged_by_its_driver_is_logged_once(
    tmp_path: Path, at_the_signal: bool
) -> None:
    ended = Tracker(arguments(tmp_path))
    ended.log(2, ROW)
    ended.expect(3, ROW | {"train/loss": 0.25})
    if at_the_signal:
        ended.end_now(3, ROW | {"train/loss": 0.25})
        assert _rows(tmp_path) == [(2, 0.5), (3, 0.25)]
    for _ in range(2):
        following = Tracker(arguments(tmp_path))
        following.log_pending(trained=3)
        following.close()
    assert _rows(tmp_path) == [(2, 0.5), (3, 0.25)]
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [tensor.step for tensor in events.Tensors("train/loss")] == [2, 3]


def test_the_row_of_a_step_that_is_not_in_the_weights_is_dropped(tmp_path: Path) -> None:
    Tracker(arguments(tmp_path)).expect(3, ROW)
    following = Tracker(arguments(tmp_path))
    following.log_pending(trained=2)
    assert _rows(tmp_path) == [] and following.pending.left() is None
    (tmp_path / "untold_metrics.json").write_text("{")
    following.log_pending(trained=9)
    assert _rows(tmp_path) == []


class FakeWandb(ModuleType):
    """Stores what the real package would send."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.starts: list[dict[str, Any]] = []
        self.points: list[dict[str, float]] = []
        self.axes: dict[str, str] = {}
        self.finished = 0

    def init(self, **options: object) -> Any:
        self.starts.append(options)
        return SimpleNamespace(
            id=options["id"] or "run-1",
            log=self.points.append,
            define_metric=lambda name, step_metric: self.axes.update({name: step_metric}),
            finish=lambda: setattr(self, "finished", self.finished + 1),
        )


class FakeTrackio(ModuleType):
    """Has the parameters of the real package (0.43.0), by name."""

    def __init__(self) -> None:
        super().__init__("trackio")
        self.starts: list[dict[str, Any]] = []
        self.points: list[tuple[int | None, dict[str, float]]] = []
        self.finished = 0

    def init(
        self, project: str, name: str | None = None, config: Any = None, resume: str = "never",
        auto_log_gpu: bool | None = None, auto_log_cpu: bool | None = None,
    ) -> None:  # fmt: skip
        self.starts.append({"project": project, "name": name, "resume": resume, "config": config})

    def log(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.points.append((step, metrics))

    def finish(self) -> None:
        self.finished += 1


def test_trackio_gets_every_metric_of_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trackio = FakeTrackio()
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    for rollout_id in (0, 1):
        tracker = Tracker(arguments(tmp_path / "mine", use_trackio=True, trackio_project="tiny"))
        tracker.log(rollout_id, {"train/loss": 0.5})
        tracker.close()
    assert trackio.points == [(0, {"train/loss": 0.5}), (1, {"train/loss": 0.5})] and trackio.finished == 2
    assert [(one["project"], one["name"], one["resume"]) for one in trackio.starts] == [
        ("tiny", "mine", "allow")
    ] * 2
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(ConfigError, match="pip install trackio"):
        Tracker(arguments(tmp_path, use_trackio=True))


def test_all_drivers_of_a_run_folder_log_to_one_wandb_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    flags = {"use_wandb": True, "wandb_mode": "offline", "wandb_project": "tiny", "use_tensorboard": False}
    flags |= {"rollout_batch_size": 4, "n_samples_per_prompt": 2, "global_batch_size": 2, "train_epochs": 3}
    for always in (False, True):
        tracker = Tracker(arguments(tmp_path, **flags, wandb_always_use_train_step=always))
        tracker.log(5, {"train/loss": 1.0, "perf/step_time": 2.0})
        tracker.close()
    first, second = wandb.starts
    assert (first["id"], second["id"], first["mode"], first["project"]) == (None, "run-1", "offline", "tiny")
    assert first["config"]["rollout_batch_size"] == 4
    assert wandb.axes["train/*"] == "train/step" and wandb.finished == 2
    assert wandb.points[0] == {"train/loss": 1.0, "perf/step_time": 2.0, "train/step": 5, "perf/step": 5}
    assert wandb.points[1]["train/step"] == 5 * 12, "three passes of four steps a rollout"


def test_a_missing_wandb_package_is_rejected_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        Tracker(arguments(tmp_path, use_wandb=True))


def test_a_terminal_shows_a_bar_and_other_outputs_get_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(display("auto", 3), Lines), "the output of a test is not a terminal"
    bar = display("bar", 3)
    assert isinstance(bar, Bar)
    bar.at(1, "waiting for rollout 1")
    bar.line("rollout 0 | loss [0.5]")
    bar.close()
    shown = capsys.readouterr().out
    assert "rollout 0 | loss [0.5]" in shown and "waiting for rollout 1" in shown and "1/3" in shown


class Left(io.StringIO):
    """A closed terminal, or a `tee` that Ctrl-C ended first."""

    def __init__(self, error: type[OSError]) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error

    def fileno(self) -> int:
        return 1


@pytest.mark.parametrize("error", [OSError, BrokenPipeError])
@pytest.mark.parametrize("kind", ["lines", "bar"])
def test_a_run_continues_after_its_output_pipe_is_closed(
    kind: str, error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "dup2", lambda *_: None)  # rich replaces standard output
    shown = display(kind, 3)
    with redirect_stdout(Left(error)):
        for rollout_id in (0, 1):
            shown.line(f"rollout {rollout_id} | loss 0.5")
            shown.at(rollout_id + 1, "training")
        shown.close()


def test_the_line_of_a_rollout_is_in_the_log_file_and_once_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "logs" / "training.log"
    log_to_file(log)
    try:
        tracker = Tracker(arguments(tmp_path, use_tensorboard=False))
        tracker.log(3, {"train/loss": 0.5})
        tracker.close()
    finally:
        for logger in (logging.getLogger(), logging.getLogger("slime.progress")):
            for handler in [h for h in logger.handlers if isinstance(h, logging.FileHandler)]:
                logger.removeHandler(handler)
    assert log.read_text().rstrip().endswith("rollout 3 | loss 0.5")
    assert log.stat().st_mode & 0o777 == 0o600, "for its owner alone"
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("rollout 3") == 1


def test_an_evaluation_line_shows_scores_only() -> None:
    metrics = {"eval/gsm": 0.125, "eval/gsm/response_len/mean": 9.0, "eval/aime": 1.0, "perf/eval_time": 2.0}
    assert evaluation_line(4, metrics) == "evaluation 4 | gsm 0.125 | aime 1"


def test_a_line_reports_the_distance_from_the_first_model() -> None:
    metrics = {"weights/version": 3.0, "train/kl_loss": 0.0007, "train/ppo_kl": 0.0}
    assert progress_line(2, metrics) == "rollout 2 | version 3 | kl to the first model 0.0007"
    assert "kl of the update 0.01" in progress_line(2, {"train/ppo_kl": 0.01})


def test_the_first_lines_give_paths_and_addresses(tmp_path: Path) -> None:
    args = arguments(tmp_path, use_tensorboard=True)
    assert beginning(args, -1).startswith("training begins; run folder ")
    assert f"tensorboard --logdir {args.tensorboard_dir}" in beginning(args, -1)
    assert "goes on after rollout 4" in beginning(arguments(tmp_path, use_tensorboard=False), 4)
    assert "tensorboard" not in beginning(arguments(tmp_path, use_tensorboard=False), 4)
