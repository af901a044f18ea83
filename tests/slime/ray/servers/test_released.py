"""Tests that the record of an engine process that released its memory outlives its driver."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from claw_base.run_folder import records
from slime.processes import control
from slime.ray import components
from slime.ray.servers.engine_clients import ReleasedEngine, end_released


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[records.ProcessRecord]:
    """Yields a server that waits, recorded as engine-0."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    record = control.spawn(tmp_path, "engine-0", "engine", command, None, {})
    yield record
    control.terminate(record, grace=0.0)


def test_a_starting_driver_ends_an_engine_left_without_memory(
    engine: records.ProcessRecord, tmp_path: Path
) -> None:
    noted = ReleasedEngine(tmp_path, "engine-0")
    noted.note(noted.process())
    end_released(tmp_path)
    assert not engine.alive()
    assert not list((tmp_path / "released").iterdir())


@pytest.mark.parametrize("noted", ["1/another", ""])
def test_an_engine_with_memory_or_restarted_continues_to_serve(
    engine: records.ProcessRecord, tmp_path: Path, noted: str
) -> None:
    note = ReleasedEngine(tmp_path, "engine-0")
    note.note(note.process())
    note.note(noted)
    end_released(tmp_path)
    assert engine.alive()


def test_ended_and_remote_engines_leave_no_memory_record(tmp_path: Path) -> None:
    gone, elsewhere = ReleasedEngine(tmp_path, "engine-0"), ReleasedEngine(tmp_path, None)
    gone.note("7/0")
    elsewhere.note("7/0")
    assert elsewhere.process() == gone.process() == ""
    end_released(tmp_path)
    assert not list((tmp_path / "released").iterdir())


STARTED = (
    "server_specs", "split_of", "log_to_file", "write_arguments", "Runtime", "Placement", "EngineNodes",
    "clear_missing_live", "on_own_gpus", "end_released", "WatcherHandle", "Rollouts", "Tracker", "weight_sender",
    "ExternalEngines", "Publisher",
)  # fmt: skip


def test_a_driver_ends_engines_without_memory_before_adopting_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = MagicMock()
    seen.clear_missing_live.return_value = None
    for name in STARTED:
        monkeypatch.setattr(components, name, getattr(seen, name))
    monkeypatch.setattr(components, "check_before_start", lambda args, env: None)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    folder = str(tmp_path)
    args: Any = SimpleNamespace(
        run_dir=folder, save=folder, update_weight_disk_dir=folder, ray_start_timeout=9.0, health_timeout=9.0,
        debug_rollout_only=True, train_adapters=None,
    )  # fmt: skip
    components.RunComponents(args)
    order = [call[0] for call in seen.mock_calls]
    assert order.index("end_released") < order.index("WatcherHandle")
    environment = seen.EngineNodes.call_args.args[2]
    assert "PATH" in environment and "PYTORCH_CUDA_ALLOC_CONF" not in environment
