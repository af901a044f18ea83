"""Tests tasks whose Dockerfile has to be built: with the real podman, in sandboxes with its image."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.agents import Task
from slime.errors import DataError
from slime.sandbox import Shells
from slime.sandbox.images import Image, built_image
from slime.sandbox.images.tools import Tool
from terminal_rl import verdict
from terminal_rl.environment import TerminalEnvironment, TerminalSettings
from terminal_rl.system import LIMITS, read_only_of, writable_of
from terminal_rl.task_folder import TaskError, read_task
from terminal_rl.tasks import FolderTask
from tests.slime.sandbox.images import open_folder, plain_tar, podman_of, root_folder
from tests.terminal_rl.conftest import Write

pytestmark = pytest.mark.skipif(
    shutil.which("podman") is None or shutil.which("bwrap") is None or os.getuid() != 0,
    reason="podman or bubblewrap is not installed, or this is not root",
)
DOCKER = """FROM localhost/mini:1
ENV COLOUR=blue
WORKDIR /srv/work
COPY --chown=1 task.yaml .
RUN cat task.yaml > twice && cat task.yaml >> twice && mkdir -p /data && echo kept > /data/notes && touch /etc/built
"""
TESTS = """import subprocess, sys
from pathlib import Path

def test_done():
    assert Path("/srv/work/done").read_text() == "yes\\n"

def test_notes():
    assert Path("/data/notes").read_text() == "kept\\nmore\\n" and Path("/etc/built").exists()

def test_programs_come_from_the_image():
    assert subprocess.run(["cat", "/etc/mark"], capture_output=True, text=True).stdout == "mini\\n"
    assert not sys.executable
"""


@pytest.fixture(scope="module")
def podman() -> Iterator[Path]:
    """Yields a folder to prepend to PATH, with a podman that has separate storage and localhost/mini:1."""
    with open_folder() as folder, podman_of(folder) as tool:
        (folder / "bin").mkdir()
        (folder / "bin/podman").write_text(f'#!/bin/sh\nexec {" ".join(tool.words)} "$@"\n')
        (folder / "bin/podman").chmod(0o755)
        archive = plain_tar(root_folder(folder / "root", files={"etc/mark": "mini\n"}), folder / "root.tar")
        subprocess.run([*tool.words, "import", archive, "localhost/mini:1"], capture_output=True, check=True)
        yield folder


@pytest.fixture(autouse=True)
def usual(podman: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{podman / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("SLIME_IMAGE_DIR", str(podman / "cache"))


def left_of(podman: Path) -> str:
    tool = Tool((str(podman / "bin/podman"),))
    return tool.ask("ps", "-aq").stdout + tool.ask("images", "-q", "--filter", "reference=slime-built").stdout


def test_a_task_runs_and_is_judged_on_its_dockerfiles_image(write_task: Write, podman: Path) -> None:
    task = FolderTask(write_task(TESTS, Dockerfile=DOCKER))
    assert task.folder.dockerfile is not None and task.folder.files == ()
    for script, passed in (("true", 1), ("echo yes > done; echo more >> /data/notes; touch /etc/x", 3)):
        with task.workspace() as workspace:
            with Shells(workspace, LIMITS, read_only_of(workspace), image=workspace.image) as shells:
                said = shells.execute("main", f"{script}; pwd; ls -1; echo $COLOUR", 60.0).output
            found = task.verdict(workspace)
        assert said.endswith(
            "/srv/work\ndone\ntask.yaml\ntwice\nblue\n" if passed == 3 else "task.yaml\ntwice\nblue\n"
        )
        assert (found.passed, found.total) == (passed, 3), found
    assert "Read-only file system" in said, "writing elsewhere is refused"
    assert left_of(podman) == ""


async def test_an_episode_starts_in_the_images_working_folder(write_task: Write) -> None:
    task = write_task(TESTS, Dockerfile=DOCKER)
    environment = TerminalEnvironment(TerminalSettings(task.path.parent))
    try:
        start = await environment.reset(Task("", metadata={"task_path": "a-task"}))
        assert "/srv/work" in str(start.messages)
    finally:
        await environment.close()


def test_a_setup_script_runs_on_the_image(write_task: Write) -> None:
    task = FolderTask(
        write_task(TESTS, Dockerfile=DOCKER, setup_dot_sh="echo more >> /data/notes; echo yes > done")
    )
    with task.workspace() as workspace:
        found = task.verdict(workspace)
    assert found.solved, found


def test_an_image_is_built_again_only_when_its_folder_changes(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM localhost/mini:1\nCOPY a /a\nRUN cat a > b\n")
    (tmp_path / "a").write_text("1")
    first = built_image(tmp_path / "Dockerfile")
    assert built_image(tmp_path / "Dockerfile", chosen=[]) == first, "without a tool: it is in the cache"
    (tmp_path / "a").write_text("2")
    assert (built_image(tmp_path / "Dockerfile").path / "b").read_text() == "2"


def test_an_unbuildable_dockerfile_is_rejected_in_one_line(write_task: Write, podman: Path) -> None:
    task = FolderTask(write_task(Dockerfile="FROM localhost/mini:1\nRUN exit 3\n"))
    with pytest.raises(TaskError, match="podman cannot build it: ") as refused:
        task.workspace()
    assert "\n" not in str(refused.value)
    with pytest.raises(DataError):
        built_image(task.folder.path / "Dockerfile")
    assert left_of(podman) == ""


def test_a_file_outside_the_dockerfiles_folder_is_rejected_without_a_build(write_task: Write) -> None:
    path = write_task().path
    (path / "Dockerfile").write_text("COPY nothing /app/")
    with pytest.raises(TaskError, match="there is no nothing"):
        read_task(path)


def test_small_folders_of_an_image_are_writable_but_not_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("root", "srv/work", "opt", "home"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "opt/large").write_bytes(bytes(2000))
    (tmp_path / "data").symlink_to("/etc")
    monkeypatch.setattr("terminal_rl.system.MOST_COPIED", 1000)
    assert writable_of(Image("test", tmp_path), "/srv/work") == ("/root", "/home")


def test_an_agent_cannot_see_a_tasks_tests(write_task: Write) -> None:
    task = FolderTask(write_task(TESTS, Dockerfile=DOCKER))
    with task.workspace() as workspace, Shells(workspace, LIMITS, image=workspace.image) as shells:
        assert "No such file" in shells.execute("main", "ls /tests", 60.0).output
        assert verdict.run_tests(task.folder, workspace).total == 3
