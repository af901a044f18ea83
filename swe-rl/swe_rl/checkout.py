"""Working copies of an instance's repository: the one an agent works in, and fresh ones that its patch is tried in."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slime.agents.sandbox import Finished, Limits, Workspace, run
from slime.agents.sandbox.command import box_python
from slime.errors import ConfigError, DataError, SandboxError
from swe_rl.instance import Instance
from swe_rl.repository import source_of, test_packages
from swe_rl.verdicts import SECRET

LIMITS = Limits(
    memory=1 << 30, cpu_seconds=600, processes=64, disk_bytes=128 << 20, open_files=256, output_chars=8 << 20
)
GIT = (
    "git -c user.name=agent -c user.email=agent@localhost -c init.defaultBranch=main -c safe.directory=* "
    "-c core.autocrlf=false"
)
VERDICTS = Path(__file__).with_name("verdicts.py")
GIT_SECONDS = 120.0
WORKSPACE_BYTES = 256 << 20


def checkout(instance: Instance, for_agent: bool, place: str = "/workspace") -> Workspace:
    """A fresh copy of the broken repository, seen at `place`; an agent's is without the tests that decide.

    Raises:
        ConfigError, DataError: it cannot be made, today or ever. SandboxError: its box did not come up.
    """
    if not instance.repository and not instance.files:
        raise ConfigError(
            f"{instance.instance_id} is an image ({instance.image}); without docker, repositories are packages or folders"
        )
    workspace = Workspace(
        source_of(instance.repository) if instance.repository else None, place, WORKSPACE_BYTES
    )
    try:
        for name, text in instance.files.items():
            workspace.write(name, text.encode())
        if instance.bug is not None:
            try:
                source = workspace.read(instance.bug.file, 16 << 20).decode()
                workspace.write(instance.bug.file, instance.bug.apply(source).encode())
            except (OSError, ValueError) as error:
                raise DataError(f"{instance.instance_id}: {error}") from error
        if for_agent:
            for name in (*instance.test_files, ".git"):
                workspace.remove(name)
    except BaseException:
        workspace.close()
        raise
    return workspace


def commit(instance: Instance, work: Workspace) -> None:
    """A repository of git with one commit, for an agent that wants one. Raises SandboxError where there is none."""
    done = in_box(f"{GIT} init -q && {GIT} add -A -f && {GIT} commit -q -m base", GIT_SECONDS, work)
    if done.exit_code != 0:
        raise SandboxError(f"{instance.instance_id}: no first commit: {done.output[-300:]}{done.error}")


def in_box(
    command: str, seconds: float, workspace: Workspace, read_only: dict[Path, str] | None = None
) -> Finished:
    python = str(Path(box_python()[0]).parent)
    path = {"PATH": f"{python}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return run(command, seconds, workspace, LIMITS, read_only, path)


def patch_of(instance: Instance, work: Workspace) -> str:
    """What an agent changed, against a clean index: neither its git folder, nor hooks or settings in it, are used.

    Raises:
        SandboxError: its box did not come up.
    """
    with contextlib.closing(checkout(instance, for_agent=True)) as base:
        tree = f"{GIT} --git-dir=/workspace/.git --work-tree=/agent -c core.attributesFile=/dev/null"
        taken = (
            f"{GIT} init -q && {GIT} add -A -f && before=$({GIT} write-tree) && cd /agent && {tree} add -A -f"
        )
        shown = "diff --cached --binary --no-ext-diff --no-textconv --no-color --full-index"
        command = f"{{ {taken}; }} >/dev/null 2>&1 && {tree} {shown} $before"
        made = in_box(command, GIT_SECONDS, base, {work.path: "/agent"})
        return made.output if made.exit_code == 0 else ""


@dataclass(frozen=True)
class Verdicts:
    """Of one run of tests.

    Attributes:
        outcomes: "passed", "failed" or "skipped" of each test that ran to its end.
        why: of what failed, by test or file.
        ended: the run came to its end; otherwise `problem` says what ended it.
    """

    outcomes: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    problem: str = ""
    exit_code: int | None = None


def run_tests(workspace: Workspace, tests: list[str], seconds: float, first: str = "true") -> Verdicts:
    """Runs tests (ids, files, or nothing for all) in a box of their own; the workspace is as they leave it.

    Args:
        first: a command that comes before them; no test runs where it fails.

    Raises:
        ConfigError: what tests need cannot be installed. SandboxError: the box did not come up.
    """
    python = box_python()[0]
    packages = test_packages(python)
    secret = secrets.token_hex(16)
    workspace.remove(SECRET.name)
    workspace.write(SECRET.name, secret.encode())
    workspace.remove(".verdicts")
    workspace.write(".verdicts/verdicts.py", VERDICTS.read_bytes())
    workspace.write(".verdicts/tests", "\n".join(tests).encode())
    command = (
        f"{{ {first}; }} && PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 "
        "PYTHONPATH=/workspace/src:/workspace:/tests-need:/workspace/.verdicts "
        f"{python} -m pytest -p verdicts -p no:cacheprovider -q --no-header --tb=line -W ignore "
        f"--rootdir=/workspace {'@/workspace/.verdicts/tests' if tests else ''}"
    )
    done = in_box(command, seconds, workspace, {packages: "/tests-need"})
    return _parsed(done, secret)


def _parsed(done: Finished, secret: str) -> Verdicts:
    outcomes: dict[str, str] = {}
    why: dict[str, str] = {}
    ended = False
    for line in _told(done.output, secret):
        said = json.loads(line)
        if "test" in said:
            outcomes[said["test"]] = said["outcome"]
        elif "place" in said:
            why[said["place"]] = said["why"]
        else:
            ended = said["end"] == len(outcomes)
    problem = done.error or (
        "" if ended else f"the tests came to no end (exit code {done.exit_code}): {done.output[-400:]}"
    )
    return Verdicts(outcomes, why, ended and done.error is None, problem, done.exit_code)


def _told(output: str, secret: str) -> Iterator[str]:
    for line in output.splitlines():
        if line.startswith(f"{secret} "):
            yield line.removeprefix(f"{secret} ")
