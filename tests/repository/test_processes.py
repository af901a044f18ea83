"""Tests `--processes`: what a run in several processes reports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import ROOT

CONFTEST = """
import os, pytest
from tests import processes
from tests.processes import pytest_runtestloop

def pytest_addoption(parser):
    parser.addoption("--processes", type=int, default=1)

withdraw = processes._Forks._withdraw_queues

def withdraw_and_mark(forks):
    withdraw(forks)
    open("withdrawn", "w").close()

processes._Forks._withdraw_queues = withdraw_and_mark

@pytest.fixture(scope="session")
def of_session():
    yield
    print("closed", file=open("closed", "a"))

@pytest.fixture(scope="module")
def of_module(of_session):
    yield os.getpid()
    print("module", file=open("closed", "a"))
"""
MEETING = """
import os, time
from pathlib import Path

def test_both_files_run_at_once(of_module, tmp_path):
    assert of_module == os.getpid()
    Path("here{number}").touch()
    deadline = time.monotonic() + 60
    while not Path("here{other}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (tmp_path / "made").write_text(str(tmp_path))
"""
FAILS = """
import time
from pathlib import Path

def test_fails_when_the_other_file_has_begun():
    deadline = time.monotonic() + 60
    while not Path("begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert False
"""
WAITS = """
import time
from pathlib import Path

def test_ends_when_the_other_files_are_withdrawn():
    Path("begun").touch()
    deadline = time.monotonic() + 60
    while not Path("withdrawn").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""
TROUBLE = """
import os, signal, warnings
import pytest

def test_passes_before():
    pass

def test_fails():
    print("a printed line")
    assert 1 == 2

def test_kills_its_process():
    os.kill(os.getpid(), signal.SIGKILL)

def test_continues_in_another_process(of_module):
    warnings.warn("a warning of a test")

@pytest.mark.skip(reason="a reason to skip")
def test_is_skipped():
    pass
"""


def run(folder: Path, *words: str) -> str:
    """Returns what pytest prints for the tests of a folder in two processes."""
    (folder / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-ra", "-c", os.devnull, "--rootdir", str(folder)]
    command += ["--import-mode=importlib", "-p", "no:cacheprovider", "--processes", "2", *words]
    env = os.environ | {
        "COLUMNS": "200",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    return f"{done.stdout}{done.stderr}\nstatus {done.returncode}"


def test_files_run_at_once_and_fixtures_are_closed(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"test_{number}.py").write_text(
            MEETING.replace("{number}", str(number)).replace("{other}", str(1 - number))
        )
    shown = run(tmp_path)
    assert "2 passed" in shown and shown.endswith("status 0"), shown
    assert sorted((tmp_path / "closed").read_text().split()) == ["closed", "closed", "module", "module"]


def test_failures_warnings_and_killed_processes_are_reported(tmp_path: Path) -> None:
    (tmp_path / "test_trouble.py").write_text(TROUBLE)
    shown = run(tmp_path)
    assert "2 failed, 2 passed, 1 skipped, 1 warning" in shown and shown.endswith("status 1"), shown
    assert "FAILED test_trouble.py::test_kills_its_process - the process of this test ended" in shown
    assert "a printed line" in shown and "a warning of a test" in shown and "a reason to skip" in shown
    assert (tmp_path / "closed").read_text().split() == ["module", "closed"]


def test_after_the_first_failure_no_further_file_is_started_if_requested(tmp_path: Path) -> None:
    (tmp_path / "test_0.py").write_text(FAILS)
    (tmp_path / "test_1.py").write_text(WAITS)
    for number in range(2, 6):
        (tmp_path / f"test_{number}.py").write_text("def test_passes():\n    pass\n")
    shown = run(tmp_path, "-x")
    assert "1 failed, 1 passed" in shown and "stopping after 1 failures" in shown, shown


def test_an_invalid_test_file_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_invalid.py").write_text("import nothing_of_this_name")
    (tmp_path / "test_trouble.py").write_text(TROUBLE)
    shown = run(tmp_path)
    assert "1 error" in shown and shown.endswith("status 2") and "passed" not in shown, shown
