"""Tests the task's tests, run after the agent on its files: their verdicts, and that no agent can manipulate them."""

from __future__ import annotations

import errno
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slime.errors import EnvironmentAway
from slime.sandbox import Shells, Workspace
from terminal_rl import verdict
from terminal_rl.check import main as check
from terminal_rl.system import LIMITS, READ_ONLY
from terminal_rl.task_folder import TaskError
from terminal_rl.tasks import FilesTask, FolderTask
from tests import ROOT
from tests.terminal_rl.conftest import Write

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
TWO = """
import subprocess

def test_first():
    assert subprocess.run(["bash", "/app/go.sh"], capture_output=True, text=True).stdout == "one\\n"

def test_second():
    assert subprocess.run(["bash", "/app/go.sh", "2"], capture_output=True, text=True).stdout == "two\\n"
"""


def worked(task: FolderTask, script: str) -> verdict.Verdict:
    """Returns the verdict of the task's tests after an agent has run the script."""
    with task.workspace() as workspace:
        with Shells(workspace, LIMITS, READ_ONLY) as shells:
            shells.execute("main", script, 60.0)
        return task.verdict(workspace)


def test_solutions_pass_and_neither_doing_nothing_nor_cheating_passes_a_test(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check([]) == 0, capsys.readouterr().out


def test_fractions_of_tests_are_reported_and_only_all_tests_solve_a_task(write_task: Write) -> None:
    task = FolderTask(write_task(TWO))
    half = worked(task, "echo 'echo one' > go.sh")
    assert (half.accuracy, half.solved) == (0.5, False) and half.failures[0].startswith(
        "test_second: line 8: Assert"
    )
    whole = worked(task, "echo '[ $# = 0 ] && echo one || echo two' > go.sh")
    assert (whole.accuracy, whole.solved, whole.failures) == (1.0, True, ())


def test_a_program_that_hangs_the_tests_fails_the_task(write_task: Write) -> None:
    found = worked(FolderTask(write_task(TWO, seconds=1.5)), "echo 'sleep 600' > go.sh")
    assert found.late and found.passed == 0 and "not done after 1.5 s" in found.failures[0]


def test_a_runner_that_never_reports_is_late_and_no_exit_code_is_invented(
    write_task: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "GRACE", 1.0)
    blocks = (
        "import os, signal, time\n\ndef test_it():\n    if os.path.exists('/app/stay'):\n"
        "        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\n        time.sleep(600)\n"
    )
    found = worked(FolderTask(write_task(blocks, seconds=1.0)), "touch stay")
    assert found.late and found.failures == ("not done after 1 s, and without a report",)


def test_tests_that_hang_by_themselves_are_not_a_failed_task(write_task: Write) -> None:
    hangs = "def test_it():\n while True:\n  try:\n   while True: pass\n  except Exception: pass\n"
    with pytest.raises(EnvironmentAway, match="on an untouched workspace either"):
        worked(FolderTask(write_task(hangs, seconds=1.0)), "true")


@pytest.mark.parametrize(
    "attack",
    [
        "kill -9 $PPID",
        "kill -9 -1",
        'for file in /proc/[0-9]*/fd/*; do echo \'{"key": "", "results": []}\' > $file; done',
        "cat /proc/$PPID/environ /proc/$PPID/mem /proc/$PPID/fd/*",
        "gdb -p $PPID; mount --bind /app /tests; rm -rf /tests; echo x > /tests/test_outputs.py",
        "head -c 100000000 /dev/zero",
    ],
)
def test_files_left_by_the_agent_cannot_make_tests_pass(write_task: Write, attack: str) -> None:
    found = worked(FolderTask(write_task(TWO)), f"cat > go.sh <<'END'\n{attack}\nEND")
    assert (found.passed, found.total) == (0, 2)


def test_the_agent_cannot_see_the_tests_and_none_of_its_processes_run_during_them(write_task: Write) -> None:
    tests = """
import time
from pathlib import Path

def test_no_process_of_the_agent_continues():
    before = Path("/app/beats").read_text()
    assert before and Path("/app/seen").read_text() == ""
    time.sleep(0.5)
    assert Path("/app/beats").read_text() == before
    assert len([name for name in Path("/proc").iterdir() if name.name.isdigit()]) < 5
"""
    script = """
    (while :; do echo x >> beats; ls /tests >> seen 2> /dev/null; sleep 0.05; done) &
    setsid nohup bash -c 'while :; do echo y >> beats; sleep 0.05; done' > /dev/null 2>&1 &
    touch seen; sleep 0.3
    """
    found = worked(FolderTask(write_task(tests)), script)
    assert found.solved, found.failures


def test_a_workspace_that_is_too_large_fails_its_task(write_task: Write) -> None:
    task = FolderTask(write_task())
    with task.workspace() as workspace:
        workspace.write("done", b"yes\n")
        assert task.verdict(workspace).solved
        workspace.most_entries = 3
        for number in range(5):
            workspace.write(str(number), b"")
        found = task.verdict(workspace)
    assert (found.passed, found.total) == (0, 1) and "more than 3 files" in found.failures[0]


def test_a_sandbox_that_does_not_start_is_not_a_failed_task(
    write_task: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(3)")
    monkeypatch.setattr(verdict, "RUNNER", broken)
    with pytest.raises(EnvironmentAway, match="did not start"):
        worked(FolderTask(write_task()), "true")


@pytest.mark.parametrize("kind", ["folder", "files"])
def test_a_full_disk_is_not_a_failed_task_and_leaves_no_workspace(
    kind: str, write_task: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def full(workspace: Workspace, *_: object) -> None:
        made.append(workspace.path)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Workspace, "write", full)
    folder = write_task(environment__a_dot_txt="a") if kind == "folder" else None
    task = FolderTask(folder) if folder else FilesTask("a chore", "do it", {"a.txt": "a"}, {})
    with pytest.raises(EnvironmentAway, match="No space left"):
        task.workspace()
    assert len(made) == 1 and not made[0].exists()


def test_a_failing_setup_is_reported_with_its_script_and_last_output(write_task: Write) -> None:
    task = FolderTask(write_task(setup_dot_sh="echo begun\necho no such luck >&2\nexit 3\n"))
    with pytest.raises(TaskError, match=r"setup.sh fails: exit code 3: begun no such luck"):
        task.workspace()


def test_a_setup_runs_once_for_many_episodes(write_task: Write) -> None:
    task = FolderTask(write_task(setup_dot_sh="head -c 16 /dev/urandom | base64 > drawn\n"))
    with task.workspace() as one, task.workspace() as other:
        assert one.read("drawn") == other.read("drawn") != b""
        one.write("drawn", b"mine")
        assert other.read("drawn") != b"mine"


def test_a_chore_is_compared_file_by_file() -> None:
    task = FilesTask("x", "x", {"a.txt": "1\n"}, {"b.txt": "1\n", "d/": ""})
    for script, right in (
        ("mv a.txt b.txt; mkdir d", True),
        ("cp a.txt b.txt; mkdir d", False),
        ("mv a.txt b.txt; touch d", False),
        ("mv a.txt c; ln -s c b.txt; mkdir d", False),
        ("mv a.txt b.txt; mkdir d; mkfifo d/f", False),
    ):
        with task.workspace() as workspace:
            with Shells(workspace, LIMITS) as shells:
                shells.execute("main", script)
            assert task.verdict(workspace).solved is right, script


def test_the_readmes_example_task_is_valid(tmp_path: Path) -> None:
    [block] = re.findall(
        r"```\n(mkdir -p my-tasks.*?)```", (ROOT / "terminal-rl/README.md").read_text(), re.DOTALL
    )
    command = block.replace("python -m", f"{sys.executable} -m")
    done = subprocess.run(
        ["bash", "-euc", command], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "good  say-hello\n"), done.stderr
