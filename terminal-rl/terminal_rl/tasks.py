"""Tasks in the environment's form: an initial workspace, and a verdict on its final state."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from slime.agents import Task
from slime.errors import ConfigError, DataError, EnvironmentAway
from slime.sandbox import Image, Workspace, run
from slime.sandbox.images import built_image
from terminal_rl.system import LIMITS, WORKSPACE_BYTES, read_only_of, writable_of
from terminal_rl.task_folder import AGENT_SECONDS, WORKDIR, TaskError, TaskFolder, read_task
from terminal_rl.verdict import Verdict, judge

SETUP_SECONDS = 120.0
MOST_PREPARED = 128
LONGEST_FILE = 1 << 20
_prepared: dict[Path, Workspace] = {}
_preparing: dict[Path, threading.Lock] = {}
_lock = threading.Lock()


class TerminalTask(Protocol):
    """The environment's interface to a task. Its methods block."""

    @property
    def name(self) -> str: ...

    @property
    def instruction(self) -> str: ...

    @property
    def agent_seconds(self) -> float: ...

    def workspace(self) -> Workspace:
        """Returns a fresh workspace. Raises EnvironmentAway if this machine could not create it, TaskError if the
        task's setup fails."""
        ...

    def verdict(self, workspace: Workspace) -> Verdict:
        """Returns the verdict on a workspace in which no process runs any more. Raises EnvironmentAway."""
        ...


@dataclass(frozen=True)
class FolderTask:
    """A task folder, judged by its tests."""

    folder: TaskFolder

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def instruction(self) -> str:
        return self.folder.instruction

    @property
    def agent_seconds(self) -> float:
        return self.folder.agent_seconds

    def workspace(self) -> Workspace:
        template = prepared(self.folder)  # this reference prevents its removal during the copy
        return template.again()

    def verdict(self, workspace: Workspace) -> Verdict:
        with self.workspace() as fresh:
            return judge(self.folder, workspace, fresh)


@dataclass(frozen=True)
class FilesTask:
    """A small task that consists of data: initial files and expected final files.

    Attributes:
        files, expected: texts by path; a path that ends in / is a folder.
    """

    name: str
    instruction: str
    files: Mapping[str, str]
    expected: Mapping[str, str]
    agent_seconds: float = AGENT_SECONDS

    def workspace(self) -> Workspace:
        workspace = made(WORKDIR)
        with _kept_if_whole(workspace):
            for path, text in self.files.items():
                workspace.write(path, text.encode())
        return workspace

    def verdict(self, workspace: Workspace) -> Verdict:
        files = tree(workspace.path)
        wrong = sorted(
            path for path in files.keys() | self.expected.keys() if files.get(path) != self.expected.get(path)
        )
        return Verdict(int(not wrong), 1, tuple(f"{path}: not as asked for" for path in wrong))


def made(place: str, image: Image | None = None) -> Workspace:
    """Returns a new workspace at the place, with the image's files there and the folders that tasks write to. Raises
    EnvironmentAway."""
    writable = writable_of(image, place) if image is not None else ()
    try:
        return Workspace(None, place, WORKSPACE_BYTES, image=image, writable=writable)
    except OSError as error:
        raise EnvironmentAway(f"a workspace could not be created: {error}") from error


def prepared(folder: TaskFolder) -> Workspace:
    """Returns the task's initial workspace. It is created once, however many episodes request it at the same time.
    The most recent ones are kept; older ones are removed when no episode copies them any more."""
    with _lock:
        own = _preparing.setdefault(folder.path, threading.Lock())
    with own:
        image = _prepared.get(folder.path) or _new(folder)
        with _lock:
            _prepared[folder.path] = image
            while len(_prepared) > MOST_PREPARED:
                del _prepared[next(iter(_prepared))]
        return image


def _new(folder: TaskFolder) -> Workspace:
    workspace = made(folder.workdir) if folder.dockerfile is None else _on_image(folder.dockerfile)
    with _kept_if_whole(workspace):
        for source, place in folder.files:
            copy_in(workspace, source, place)
        if folder.setup is not None:
            read_only = read_only_of(workspace)
            done = run(
                folder.setup.read_text(), SETUP_SECONDS, workspace, LIMITS, read_only, image=workspace.image
            )
            if done.exit_code != 0:
                reason = done.error or f"exit code {done.exit_code}: {' '.join(done.output.split())[-300:]}"
                raise TaskError(f"{folder.setup} fails: {reason}")
    return workspace


@contextlib.contextmanager
def _kept_if_whole(workspace: Workspace) -> Iterator[None]:
    """Removes a workspace that was not completely filled. Raises EnvironmentAway for faults of this machine, such as
    a full disk."""
    try:
        yield
    except BaseException as error:
        workspace.close()
        if isinstance(error, OSError):
            raise EnvironmentAway(f"a workspace could not be filled: {error}") from error
        raise


def _on_image(dockerfile: Path) -> Workspace:
    """Raises TaskError if the image cannot be built or has no working folder; EnvironmentAway."""
    try:
        image = built_image(dockerfile)
        return made(image.workdir if image.workdir.strip("/") else WORKDIR, image)
    except (ConfigError, DataError) as error:
        raise TaskError(str(error)) from error


def copy_in(workspace: Workspace, source: Path, place: str) -> None:
    """Copies a file or folder of the task; if the target is the workspace's root, copies the folder's entries."""
    if source.is_file():
        workspace.write(place, source.read_bytes(), bool(source.stat().st_mode & 0o100))
    elif place != ".":
        workspace.copy_in(source, place)
    else:
        for entry in sorted(source.iterdir()):
            if entry.name not in ("Dockerfile", "docker-compose.yaml"):
                copy_in(workspace, entry, entry.name)


def tree(root: Path) -> dict[str, str]:
    """Returns texts by path; paths of folders end in /. Links and unreadable files never equal an expected file."""
    files: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            files[name] = "\0link"
        elif path.is_dir():
            files[f"{name}/"] = ""
        else:
            files[name] = _text(path)
    return files


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LONGEST_FILE).decode(errors="replace")
    except OSError:
        return "\0unreadable"


def task_of(row: Task, tasks_dir: Path | None) -> TerminalTask:
    """Returns the task of a row.

    Raises:
        TaskError: the row names no task below `tasks_dir`, or an unusable one.
    """
    about: Mapping[str, Any] = row.metadata
    if "files" in about:
        return FilesTask(
            str(about["task_name"]),
            str(about["instruction"]),
            dict(about["files"]),
            dict(about["expected"]),
            float(about.get("agent_seconds", AGENT_SECONDS)),
        )
    named = about.get("task_path")
    if tasks_dir is None or not isinstance(named, str):
        raise TaskError(
            "a row needs metadata with task_path, and the run the folder of its tasks (--tasks-dir)"
        )
    path = (tasks_dir / named).resolve()
    if not path.is_relative_to(tasks_dir.resolve()):
        raise TaskError(f"task_path {named!r} is outside {tasks_dir}")
    return FolderTask(read_task(path))
