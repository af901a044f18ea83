"""Tests the memory limit of all processes of a sandbox together: by a cgroup if possible, otherwise by the
watcher."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.sandbox import Limits, Shells, box, run
from slime.sandbox.cgroup import PREFIX, Groups, birth, candidates, own_groups
from slime.sandbox.python_session import PythonSession, close_all

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
LIMITS = Limits(memory=256 << 20, processes=24, disk_bytes=4 << 20)
SECONDS = 120.0
HOGS = """
import os, time
for i in range(6):
    if os.fork() == 0:
        x = bytearray(120 << 20); x[::4096] = b'x' * len(x[::4096]); time.sleep(600)
time.sleep(600)
"""


@pytest.fixture
def none_ahead() -> Iterator[None]:
    """Closes the sandboxes that are started in advance, before and after the test."""
    close_all()
    yield
    close_all()


@needs_bubblewrap
@pytest.mark.usefixtures("none_ahead")
@pytest.mark.parametrize("by", ["cgroup", "watcher"])
def test_processes_are_limited_together_and_all_are_ended(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "watcher":
        monkeypatch.setattr(box, "make_group", lambda limits: None)
    elif own_groups() is None:
        pytest.skip("no cgroup with a limit of memory can be made here")
    with PythonSession(LIMITS) as session:
        found = session.run(HOGS, SECONDS)
        assert "together used more than 256 MiB of memory" in str(found.error) and found.restarted
        assert session.run("1", SECONDS).text() == "1"
    found_by_run = run(f"python3 -c '{HOGS.replace(chr(39), chr(34))}'", SECONDS, limits=LIMITS)
    assert "256 MiB" in str(found_by_run.error) and found_by_run.exit_code is None
    with Shells(limits=LIMITS) as shells:
        shown = shells.execute("a", f"python3 -c '{HOGS.replace(chr(39), chr(34))}'", SECONDS)
        assert "256 MiB" in str(shown.error) and shown.restarted


@needs_bubblewrap
def test_a_cgroup_is_removed_with_its_sandbox() -> None:
    groups = own_groups()
    if groups is None:
        pytest.skip("no cgroup with a limit of memory can be made here")
    assert (
        run("sleep 600 & (setsid sleep 600 &) ; head -c 3000000 /dev/zero > /tmp/x", SECONDS).exit_code == 0
    )
    with PythonSession(LIMITS) as session:
        assert PREFIX not in session.run("open('/proc/self/cgroup').read()", SECONDS).output
        assert session.box is not None and session.box.group is not None
        mine = session.box.group.folder
        assert mine.exists()
    assert not mine.exists()


def test_cgroup_version_two_files_are_written_correctly(tmp_path: Path) -> None:
    group = Groups(2, tmp_path).make(1 << 20)
    assert (group.folder / "memory.max").read_text() == "1048576"
    assert (group.folder / "memory.swap.max").read_text() == "0"
    (group.folder / "memory.events").write_text("low 0\noom 1\noom_kill 0\n")
    assert not group.over()
    (group.folder / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert group.over()


def test_a_process_finds_its_own_cgroup_under_both_versions() -> None:
    mounts = (
        "30 20 0:25 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "31 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "32 20 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    found = candidates("4:memory:/docker/x/y\n1:cpu:/\n0::/user.slice/s", mounts)
    assert found == [
        Groups(1, Path("/sys/fs/cgroup/memory/y")),
        Groups(2, Path("/sys/fs/cgroup/unified/user.slice/s")),
    ]
    assert candidates("0::/", "") == []


def test_cgroups_of_a_process_that_was_killed_are_removed_and_those_of_others_kept(tmp_path: Path) -> None:
    mine = tmp_path / f"{PREFIX}{os.getpid()}-{birth(os.getpid())}-0"
    for folder in (mine, tmp_path / f"{PREFIX}{os.getpid()}-1-0", tmp_path / f"{PREFIX}4000000-5-0"):
        folder.mkdir()
    Groups(1, tmp_path).sweep()
    assert list(tmp_path.iterdir()) == [mine]
