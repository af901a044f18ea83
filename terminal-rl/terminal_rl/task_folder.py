"""Reads task folders in the layouts of terminal-bench (task.yaml) and Harbor (task.toml)."""

from __future__ import annotations

import ast
import posixpath
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from slime.errors import DataError
from slime.sandbox.images.tools import tools
from terminal_rl.harbor_rewards import needs_more_than_a_box

WORKDIR = "/app"
AGENT_SECONDS, TEST_SECONDS = 360.0, 60.0
TESTS, SCRIPT = "test_outputs.py", "test.sh"
LONGEST_SCRIPT = 1 << 20
REWARD_FILES = ("reward.json", "reward.txt")


class TaskError(DataError):
    """A task folder is unusable; the message names the folder, the fault and the remedy."""


@dataclass(frozen=True)
class TaskFolder:
    """One task.

    Attributes:
        workdir: the agent's working folder in its sandbox.
        files: initial content of the workspace: files of this machine, and their paths relative to `workdir`.
        dockerfile: Dockerfile of an image with the files and the working folder; None if no image is built.
        setup: a script that prepares the workspace, run once in a sandbox; None if the files suffice.
        tests: folder with test_outputs.py, or Harbor's test.sh.
        test_names: functions of test_outputs.py, in order; none if test.sh gives the reward.
        test_variables: environment variables of the tests.
        reward_files: reward files that the tests may write.
        solution: a script that solves the task; None if there is none.
        inputs: files and folders below `workdir` that the agent must not change.
        agent_seconds: limit for all tool calls of an episode.
        test_seconds: limit for all tests.
    """

    name: str
    path: Path
    instruction: str
    difficulty: str
    category: str
    workdir: str
    files: tuple[tuple[Path, str], ...]
    dockerfile: Path | None
    setup: Path | None
    tests: Path
    test_names: tuple[str, ...]
    test_variables: Mapping[str, str]
    reward_files: tuple[str, ...]
    solution: Path | None
    inputs: tuple[str, ...]
    agent_seconds: float
    test_seconds: float


def read_task(path: Path) -> TaskFolder:
    """Raises TaskError if sandboxes cannot run the folder as a task."""
    if (path / "task.yaml").is_file():
        about = _mapping(path, "task.yaml", _yaml)
        instruction = about.get("instruction")
        limits = about.get("max_agent_timeout_sec"), about.get("max_test_timeout_sec")
        labels = about
    elif (path / "task.toml").is_file():
        about = _mapping(path, "task.toml", tomllib.loads)
        instruction = _text(path / "instruction.md")
        limits = _part(about, "agent").get("timeout_sec"), _part(about, "verifier").get("timeout_sec")
        labels = _part(about, "metadata")
    else:
        raise TaskError(f"{path}: no task.yaml (terminal-bench) and no task.toml (Harbor)")
    if not isinstance(instruction, str) or not instruction.strip():
        raise TaskError(f"{path}: the task has no instruction")
    workdir, files, dockerfile = _files(path)
    scripted = (path / "task.toml").is_file() and _gives_rewards(path / "tests")
    solutions = (path / "solution.sh", path / "solution" / "solve.sh")
    return TaskFolder(
        name=path.name,
        path=path,
        instruction=instruction.strip(),
        difficulty=str(labels.get("difficulty", "unknown")),
        category=str(labels.get("category", "unknown")),
        workdir=workdir,
        files=files,
        dockerfile=dockerfile,
        setup=path / "setup.sh" if (path / "setup.sh").is_file() else None,
        tests=path / "tests",
        test_names=() if scripted else _test_names(path / "tests" / TESTS),
        test_variables=_variables(path, _part(about, "verifier").get("env")),
        reward_files=_spoken_of(path / "tests") if scripted else (),
        solution=next((one for one in solutions if one.is_file()), None),
        inputs=_inputs(path, about.get("inputs")),
        agent_seconds=_seconds(path, "of the agent", limits[0], AGENT_SECONDS),
        test_seconds=_seconds(path, "of the tests", limits[1], TEST_SECONDS),
    )


def task_folders(folder: Path, depth: int = 0) -> list[Path]:
    """Returns the task folders in `folder`, or with `depth` 1 those one level deeper.

    Raises:
        TaskError: there are none.
    """
    places = folder.glob("*/" * (depth + 1)) if folder.is_dir() else iter(())
    folders = [path for path in places if any((path / name).is_file() for name in ("task.yaml", "task.toml"))]
    if not folders:
        raise TaskError(f"{folder}: no folder with a task.yaml or task.toml at depth {depth}")
    return sorted(folders)


def _yaml(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _mapping(path: Path, name: str, load: Any) -> Mapping[str, Any]:
    try:
        content = load(_text(path / name))
    except ValueError as error:
        raise TaskError(f"{path}: {name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise TaskError(f"{path}: {name} must map names to values")
    return content


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path} cannot be read: {error}") from error


def _part(about: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = about.get(name)
    return part if isinstance(part, dict) else {}


def _seconds(path: Path, what: str, value: object, usual: float) -> float:
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 86_400:
        raise TaskError(
            f"{path}: the time {what} must be seconds, more than 0 and less than a day, got {value!r}"
        )
    return float(value)


def _inputs(path: Path, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise TaskError(f"{path}: inputs must be a list of paths in the working folder")
    for one in value:
        if not one or one.startswith("/") or ".." in Path(one).parts or Path(one) == Path("."):
            raise TaskError(f"{path}: the input {one!r} is not a path in the working folder")
    return tuple(value)


def _files(path: Path) -> tuple[str, tuple[tuple[Path, str], ...], Path | None]:
    """Returns the working folder, its content, and the Dockerfile if it must be built. A Dockerfile defines folder
    and content; without one, the content is environment/. A Dockerfile with other instructions must be built, if this
    machine can."""
    for file in (path / "environment" / "Dockerfile", path / "Dockerfile"):
        if file.is_file():
            try:
                return *copies_of(file, WORKDIR), None
            except ValueError as error:
                if isinstance(error, NeedsBuild) and tools():
                    return WORKDIR, (), file
                raise TaskError(f"{file}: {error}") from error
    folder = path / "environment"
    return WORKDIR, ((folder, "."),) if folder.is_dir() else (), None


def _gives_rewards(tests: Path) -> bool:
    """Returns whether test.sh gives the reward, because it does more than run test_outputs.py.

    Raises:
        TaskError: it cannot run in a sandbox.
    """
    script = tests / SCRIPT
    if not script.is_file() or ((tests / TESTS).is_file() and TESTS in _text(script)):
        return False
    if reason := needs_more_than_a_box(script):
        raise TaskError(f"{script}: {reason}")
    if not _spoken_of(tests):
        raise TaskError(
            f"{script}: nothing in tests/ writes reward.txt or reward.json, so there is no reward"
        )
    return True


def _spoken_of(tests: Path) -> tuple[str, ...]:
    files = [file for file in tests.rglob("*") if file.is_file() and file.stat().st_size < LONGEST_SCRIPT]
    texts = [file.read_bytes() for file in files]
    return tuple(name for name in REWARD_FILES if any(name.encode() in text for text in texts))


def _variables(path: Path, section: object) -> Mapping[str, str]:
    if section is None:
        return {}
    if not isinstance(section, dict) or not all(isinstance(value, str) for value in section.values()):
        raise TaskError(f"{path}: [verifier.env] must map names to texts")
    if outer := [name for name, value in section.items() if "${" in value]:
        raise TaskError(
            f"{path}: {outer[0]} of [verifier.env] requests a variable of this machine, which sandboxes do not get"
        )
    return section


def _test_names(file: Path) -> tuple[str, ...]:
    """Raises TaskError if there are no tests, or if they cannot run in a sandbox."""
    if not file.is_file():
        raise TaskError(
            f"{file.parent.parent}: tests/{TESTS} is missing, and a task without tests has no reward"
        )
    try:
        tree = ast.parse(_text(file))
    except SyntaxError as error:
        raise TaskError(f"{file}: line {error.lineno}: {error.msg}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and _imports_pytest(node):
            raise TaskError(
                f"{file}: line {node.lineno} imports pytest, which sandboxes do not have; use plain asserts"
            )
    names = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    if not names:
        raise TaskError(f"{file}: no function whose name begins with test_")
    for test in names:
        if len(test.args.args) > len(test.args.defaults) or None in test.args.kw_defaults:
            raise TaskError(f"{file}: {test.name} requests a fixture, which sandboxes do not have")
    return tuple(test.name for test in names)


def _imports_pytest(node: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name.split(".")[0] == "pytest" for name in names)


IGNORED = ("FROM", "LABEL", "MAINTAINER", "CMD", "ENTRYPOINT", "EXPOSE")
"""Ignored instructions: a sandbox always has this machine's system, and does not run an image's commands."""


class NeedsBuild(ValueError):
    """The Dockerfile must be built by podman or docker; a sandbox cannot replace that."""


def copies_of(file: Path, usual: str) -> tuple[str, tuple[tuple[Path, str], ...]]:
    """Returns the working folder, and the copied files as pairs of source and target relative to the working folder.

    Raises:
        ValueError: a path is missing or outside the folder.
        NeedsBuild: the Dockerfile must be built.
    """
    workdir, copies = usual, []
    for number, words in _instructions(file.read_text()):
        name = words[0].upper()
        if name == "WORKDIR" and len(words) == 2:
            workdir = posixpath.join(workdir, words[1])
        elif name == "COPY" and len(words) == 3 and not words[1].startswith("--"):
            copies.append((number, words[1], posixpath.join(workdir, words[2]), words[2].endswith("/")))
        elif name not in IGNORED:
            raise NeedsBuild(
                f"line {number}: {' '.join(words[:2])} needs podman or docker; without them, sandboxes support WORKDIR "
                "and COPY of one path; use a setup.sh in the folder of the task's tests for the rest"
            )
    return workdir, tuple(_copy(file.parent, workdir, *one) for one in copies)


def _copy(context: Path, workdir: str, number: int, source: str, target: str, into: bool) -> tuple[Path, str]:
    path_in_context = (context / source.lstrip("/")).resolve()
    if not path_in_context.is_relative_to(context.resolve()) or not path_in_context.exists():
        raise ValueError(f"line {number}: there is no {source} next to the Dockerfile")
    if into and path_in_context.is_file():
        target = posixpath.join(target, path_in_context.name)
    place = posixpath.relpath(posixpath.normpath(target), workdir)
    if place == ".." or place.startswith("../"):
        raise NeedsBuild(
            f"line {number}: {target} is outside the working folder {workdir}, which is all that a sandbox keeps"
        )
    return path_in_context, place


def _instructions(text: str) -> list[tuple[int, list[str]]]:
    """Returns the line number and words of each instruction; a backslash at the end of a line continues it."""
    copies: list[tuple[int, list[str]]] = []
    held, begun = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not held and (not line.strip() or line.lstrip().startswith("#")):
            continue
        begun = begun if held else number
        held += line.strip().removesuffix("\\") + " "
        if not line.rstrip().endswith("\\"):
            copies.append((begun, shlex.split(held, comments=False)))
            held = ""
    return copies
