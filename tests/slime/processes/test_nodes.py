"""Tests servers on other machines than the driver's: their folders and their shutdown."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from claw_base.run_folder import records
from slime.errors import ConfigError, EngineError
from slime.processes import control, nodes
from slime.processes.servers import ServerSpec
from tests.fakes.other_user import NOBODY, needs_root

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yields the folder of a machine with a running engine and a recorded keeper."""
    found = nodes.folder_of(tmp_path, "10.0.0.2")
    nodes.begin(found)
    control.spawn(found, "engine-3", "engine", SLEEP, None, {})
    records.write_record(found, records.describe(os.getpid(), nodes.KEEPER, "keeper", None, []))
    yield found
    for record in records.read_records(found):
        if record.pid != os.getpid():
            control.terminate(record, grace=0.0)


def alive(folder: Path) -> bool:
    record = records.read_record(folder, "engine-3")
    return record is not None and record.alive()


def test_a_stopping_run_stops_servers_on_other_machines_and_waits_for_them(
    folder: Path, tmp_path: Path
) -> None:
    keeper = threading.Thread(target=nodes.keep, args=(folder,))
    keeper.start()
    assert alive(folder)
    assert nodes.stop_servers_on_other_machines(tmp_path, patience=20.0) == []
    keeper.join()
    assert not alive(folder)
    with pytest.raises(EngineError, match="engine-3 is not started again: the run has ended"):
        nodes.NodeServers(folder).launch(ServerSpec("engine-3", "engine", SLEEP))


def test_an_unresponsive_machine_is_reported(folder: Path, tmp_path: Path) -> None:
    assert nodes.stop_servers_on_other_machines(tmp_path, patience=0.2) == ["10.0.0.2"] and alive(folder)


def test_engines_end_when_no_driver_renews_the_lease(folder: Path) -> None:
    reason = nodes.keep(folder, seconds=0.0, sleep=lambda seconds: None)
    assert reason == "no driver has renewed the lease for 0 s" and not alive(folder)


def test_a_new_run_in_the_folder_ignores_the_last_ones_order(folder: Path) -> None:
    nodes.stop_file(folder).touch()
    nodes.stopped_file(folder).touch()
    nodes.begin(folder)
    assert not nodes.stop_file(folder).exists() and not nodes.stopped_file(folder).exists()


@needs_root
def test_a_folder_that_another_user_created_in_a_shared_folder_is_rejected(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    own, foreign = tmp_path / "own", tmp_path / "foreign"
    nodes.begin(nodes.folder_of(own, "10.0.0.2"))
    assert own.stat().st_mode & 0o777 == 0o700
    (foreign / "nodes").mkdir(parents=True)
    os.chown(foreign, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match="belongs to another user"):
        nodes.begin(nodes.folder_of(foreign, "10.0.0.2"))
    assert not list((foreign / "nodes").iterdir())


def test_remote_servers_get_the_drivers_engine_variables_but_no_keys() -> None:
    given = {
        "SGLANG_X": "1",
        "no_proxy": "10.0.0.2",
        "HOME": "/home/driver",
        "SGLANG_API_KEY": "a",
        "HF_TOKEN": "b",
    }
    assert nodes.forwarded_variables(given) == {"SGLANG_X": "1", "no_proxy": "10.0.0.2"}
