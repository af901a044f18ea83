"""The server that a program on this machine connects to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil

from claw_base.settings import command_line
from openclaw.common.address import ServerAddress


def run(runs: Path, name: str, port: int, made: float, alive: bool = True) -> None:
    """Creates a run folder whose gateway is this process, or a dead one."""
    folder = runs / name / "processes"
    folder.mkdir(parents=True)
    born = psutil.Process().create_time() - (0 if alive else 1000)
    record = {"name": "gateway", "role": "gateway", "pid": os.getpid(), "create_time": born}
    record |= {"command": [], "started_at": born}
    (folder / "gateway.json").write_text(json.dumps({**record, "url": f"http://127.0.0.1:{port}"}))
    os.utime(folder, (made, made))


def test_an_address_takes_precedence_over_a_port_and_a_port_over_a_run(tmp_path: Path) -> None:
    run(tmp_path, "one", 1111, made=1)
    assert ServerAddress(url="http://far:1/v1", port=2222).address(tmp_path) == "http://far:1/v1"
    assert command_line.load(ServerAddress, {}, {"PORT": "2222"}).address(tmp_path) == "http://127.0.0.1:2222"


def test_the_newest_live_run_is_selected(tmp_path: Path) -> None:
    run(tmp_path, "older", 1111, made=1)
    run(tmp_path, "newer", 2222, made=2)
    run(tmp_path, "newest, but gone", 3333, made=3, alive=False)
    assert ServerAddress().address(tmp_path) == "http://127.0.0.1:2222"
    assert ServerAddress(run_dir=str(tmp_path / "older")).address(tmp_path) == "http://127.0.0.1:1111"


def test_without_a_run_the_default_port_is_used(tmp_path: Path) -> None:
    assert ServerAddress().address(tmp_path) == "http://127.0.0.1:30000"
