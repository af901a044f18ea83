"""The place of a day's files and commands: a sandbox, or a plain temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path, PurePosixPath
from typing import Protocol

from openclaw_test.evaluation.metaclaw.reading import BadBench, Bench, Day, Update
from slime.errors import ConfigError
from slime.sandbox import Workspace, require_sandbox
from slime.sandbox import run as run_in_box

COMMAND_SECONDS = 60.0
SCRIPTS = "scripts"
MOST_OUTPUT = 4000
"""Most characters of a command's output that the model sees."""
_DAY = re.compile(r"day\d+")
_PYTHON = 'command -v python >/dev/null || python() { python3 "$@"; }\n'
"""Checks call `python`, but some machines have only python3."""


class Workplace(Protocol):
    """Files of one day. Paths are relative to it; a path outside raises ValueError."""

    def run(self, command: str) -> tuple[int | None, str]:
        """Runs a bash command; returns its exit status (None: it exceeded a limit) and output."""

    def read(self, path: str) -> str:
        """Returns a file's text. Raises OSError, ValueError."""

    def write(self, path: str, text: str) -> None:
        """Writes a file. Raises OSError, ValueError."""

    def put(self, folder: Path, name: str) -> None:
        """Copies a local folder into it, replacing an existing one."""

    def remove(self, name: str) -> None: ...


class Boxed:
    """A workplace in the project's sandbox."""

    def __init__(self, template: Path, opened: ExitStack) -> None:
        self._workspace = opened.enter_context(Workspace(template))

    def run(self, command: str) -> tuple[int | None, str]:
        done = run_in_box(_PYTHON + command, COMMAND_SECONDS, self._workspace)
        return done.exit_code, done.output + (f"\n{done.error}" if done.error else "")

    def read(self, path: str) -> str:
        return self._workspace.read(path).decode(errors="replace")

    def write(self, path: str, text: str) -> None:
        self._workspace.write(path, text.encode())

    def put(self, folder: Path, name: str) -> None:
        self._workspace.copy_in(folder, name)

    def remove(self, name: str) -> None:
        self._workspace.remove(name)


class Unboxed:
    """A workplace in a temporary folder, as this user: only for trusted folders and models."""

    def __init__(self, template: Path) -> None:
        self._folder = template.resolve()

    def run(self, command: str) -> tuple[int | None, str]:
        env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(self._folder), "LANG": "C.UTF-8"}
        try:
            done = subprocess.run(
                ["bash", "--norc", "-c", _PYTHON + command],
                cwd=self._folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, f"it ran longer than {COMMAND_SECONDS:g} s"
        return done.returncode, done.stdout.decode(errors="replace")

    def read(self, path: str) -> str:
        return self._inside(path).read_text("utf-8", errors="replace")

    def write(self, path: str, text: str) -> None:
        file = self._inside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def put(self, folder: Path, name: str) -> None:
        self.remove(name)
        shutil.copytree(folder, self._inside(name))

    def remove(self, name: str) -> None:
        shutil.rmtree(self._inside(name), ignore_errors=True)

    def _inside(self, path: str) -> Path:
        inside = (self._folder / path).resolve()
        if not inside.is_relative_to(self._folder):
            raise ValueError(f"{path} is outside the workspace")
        return inside


Places = Callable[[Bench, Day], AbstractContextManager[Workplace]]


class Opened(AbstractContextManager[Workplace]):
    """A day's workplace with copies of the day's folder and the shared ones; removed at the end."""

    def __init__(self, bench: Bench, day: Day, boxed: bool) -> None:
        self._bench, self._day, self._boxed = bench, day, boxed
        self._opened = ExitStack()

    def __enter__(self) -> Workplace:
        folder = Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="metaclaw-")))
        template = folder / "workspace"
        shutil.copytree(self._bench.workspace, template, ignore=self._of_other_days)
        return Boxed(template, self._opened) if self._boxed else Unboxed(template)

    def __exit__(self, *about: object) -> None:
        self._opened.close()

    def _of_other_days(self, folder: str, names: list[str]) -> list[str]:
        top = Path(folder) == self._bench.workspace
        return [name for name in names if top and _DAY.fullmatch(name) and name != self._day.id]


def places(allow_commands: bool) -> Places:
    """Returns how days are opened: in sandboxes, or unsandboxed if allowed. Raises BadBench if neither is
    possible."""
    try:
        require_sandbox()
    except ConfigError as error:
        if not allow_commands:
            raise BadBench(
                f"{error}; --allow-commands runs the commands of the folder and of the model as this user"
            ) from error
        return lambda bench, day: Opened(bench, day, boxed=False)
    return lambda bench, day: Opened(bench, day, boxed=True)


def change(place: Workplace, update: Update) -> None:
    """Applies one change to the workspace's files. Raises BadBench for an invalid path or line."""
    try:
        _change(place, update)
    except (OSError, ValueError, TypeError) as error:
        raise BadBench(f"the update {update.action} of {update.path} cannot be made: {error}") from error


def _change(place: Workplace, update: Update) -> None:
    path = str(PurePosixPath(update.path))
    if update.action == "new":
        place.write(path, update.source or "")
        return
    try:
        old = place.read(path)
    except FileNotFoundError:
        old = ""
    lines, param = old.splitlines(keepends=True), update.param
    if update.action == "append":
        place.write(path, old + (update.source or ""))
    elif update.action == "insert":
        after = int(param.get("after", 0) if isinstance(param, dict) else param or 0)
        place.write(path, "".join(lines[:after]) + (update.source or "") + "".join(lines[after:]))
    elif lines:
        gone = _numbers(param.get("lines", []) if isinstance(param, dict) else [], len(lines))
        place.write(path, "".join(line for number, line in enumerate(lines, 1) if number not in gone))


def _numbers(numbers: list[object], count: int) -> set[int]:
    """Returns line numbers, from 1: numbers, and ranges of the form `0:2`, which exclude their first number."""
    chosen: set[int] = set()
    for one in numbers:
        first, colon, last = str(one).partition(":")
        chosen |= set(range(int(first or 0) + 1, int(last or count) + 1)) if colon else {int(first)}
    return chosen
