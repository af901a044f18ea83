"""`--demo` of the tiny scripts: the simulated person, and the files of a run that did not start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import ROOT

SCRIPT = ROOT / "openclaw-combine/run_tiny_openclaw_topk_select.sh"
FAKE = """#!/bin/sh
case "$*" in
  *slime.processes.supervisor*) : >"$4/supervisor.lock"; [ -z "$BEGINS" ] || : >"$4/arguments.json"; exit 2 ;;
  *loop/demo.py*) sleep 0.2; echo "DEMO $*"; exit 1 ;;
esac
"""
"""Replaces Python: the supervisor and the demo end at once (after the driver has started, if BEGINS is set)."""


def demo(folder: Path, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    fake = folder / "venv" / "bin" / "python"
    fake.parent.mkdir(parents=True)
    fake.write_text(FAKE)
    fake.chmod(0o755)
    files = [ROOT / "requirements.txt", ROOT / "slime/pyproject.toml"]
    stamp = subprocess.run(["cksum"], input=b"".join(f.read_bytes() for f in files), capture_output=True)
    (folder / "venv" / ".installed-requirements").write_text(stamp.stdout.decode().strip())
    own = {"PATH": os.environ["PATH"], "VENV": str(folder / "venv"), "RUN_DIR": str(folder / "run"), **env}
    return subprocess.run(["bash", str(SCRIPT), *flags], env=own, capture_output=True, text=True)


def test_a_demo_that_did_not_start_leaves_no_folder(tmp_path: Path) -> None:
    assert demo(tmp_path, "--demo", "--typo").returncode == 1
    assert not (tmp_path / "run").exists()


def test_a_started_demo_keeps_its_folder(tmp_path: Path) -> None:
    demo(tmp_path, "--demo", BEGINS="1")
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        "arguments.json", "driver.out", "supervisor.lock",
    ]  # fmt: skip
    assert (tmp_path / "run" / "driver.out").stat().st_mode & 0o777 == 0o600


def test_an_existing_folder_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    demo(tmp_path, "--demo", "--typo")
    assert (tmp_path / "run" / "driver.out").exists()


@pytest.mark.parametrize("words", [("--person", "teacher"), ("--person=teacher",)])
def test_the_person_of_the_demo_can_be_chosen(tmp_path: Path, words: tuple[str, ...]) -> None:
    told = demo(tmp_path, "--demo", *words, "--seed", "3").stdout
    assert f"{' '.join(words)} --pid" in told


def test_an_unknown_demo_person_is_rejected(tmp_path: Path) -> None:
    done = demo(tmp_path, "--person", "TA")
    assert (done.returncode, done.stderr) == (
        2, "error: --person selects the demo's user: give --demo too\n",
    )  # fmt: skip


def test_ctrl_c_while_the_port_is_checked_prints_nothing(tmp_path: Path) -> None:
    slow = tmp_path / "base/claw_base/run_folder/start_check.py"
    slow.parent.mkdir(parents=True)
    for folder in (slow.parent, slow.parent.parent):
        (folder / "__init__.py").touch()
    slow.write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'begun')!r}).touch()\ntime.sleep(60)\n"
    )
    (tmp_path / "launch").symlink_to(ROOT / "launch")
    words = ["bash", "-c", 'source "$ROOT/launch/launch.sh"; RUN_DIR=run; run_problem 127.0.0.1 30000']
    env = {"PATH": os.environ["PATH"], "ROOT": str(tmp_path), "VENV": sys.prefix}
    running = subprocess.Popen(
        words, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGINT)
    assert running.communicate(timeout=60)[1] == ""
    assert running.returncode != 0
