"""Validates tasks: `python -m terminal_rl.check [DIR]`.

For each task: its solution passes all tests. Doing nothing passes none, and neither does the task's cheat (cheat.sh)
or any of the general attacks on tests.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from claw_base.settings.command_line import parse
from claw_base.settings.declare import flag
from slime.errors import ClawError, EnvironmentAway
from slime.sandbox import Shells
from terminal_rl.system import LIMITS, read_only_of
from terminal_rl.task_folder import read_task, task_folders
from terminal_rl.tasks import FolderTask
from terminal_rl.verdict import Verdict

TASKS = Path(__file__).parents[1] / "tasks"
SECONDS = 60.0
ATTEMPTS = 3
COMMON_CHEAT = """
for name in test_outputs conftest sitecustomize usercustomize json runpy pytest pathlib; do
  echo 'import os; os._exit(0)' > "$name.py"
done
mkdir -p tests && printf 'def test_outputs(): pass\\n' > tests/test_outputs.py
mkdir -p bin && for name in python3 git bash; do printf '#!/bin/sh\\nexit 0\\n' > "bin/$name"; chmod 755 "bin/$name"; done
export PATH="$PWD/bin:$PATH"; echo "export PATH=$PATH" > ~/.bashrc
rm -rf /tests 2>/dev/null; mkdir /tests 2>/dev/null
(while :; do echo 'def test_outputs(): pass' > /tests/test_outputs.py; sleep 0.05; done) > /dev/null 2>&1 &
exit 0
"""


def attempt(task: FolderTask, script: str | None) -> Verdict:
    """Returns the verdict on a workspace after running the script as an agent would. As in an episode, a failing
    sandbox is replaced.

    Raises:
        EnvironmentAway: after three failures.
    """
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(EnvironmentAway):
            return _attempt(task, script)
    return _attempt(task, script)


def _attempt(task: FolderTask, script: str | None) -> Verdict:
    with task.workspace() as workspace:
        if script is not None:
            with Shells(workspace, LIMITS, read_only_of(workspace), image=workspace.image) as shells:
                shells.execute("main", f"bash -c {_quoted(script)}", SECONDS)
        return task.verdict(workspace)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def problems(path: Path) -> Iterator[str]:
    """Yields the faults of the task. Raises TaskError, EnvironmentAway."""
    task = FolderTask(read_task(path))
    if task.folder.solution is None:
        yield "there is no solution"
    else:
        solved = attempt(task, task.folder.solution.read_text())
        if not solved.solved:
            yield f"the solution passes {solved.passed} of {solved.total} tests: {'; '.join(solved.failures)}"
    cheats: dict[str, str | None] = {"doing nothing": None, "the common cheat": COMMON_CHEAT}
    if (path / "cheat.sh").is_file():
        cheats["cheat.sh"] = (path / "cheat.sh").read_text()
    for name, script in cheats.items():
        if passed := attempt(task, script).passed:
            yield f"{name} passes {passed} tests"


def report(path: Path) -> str | None:
    try:
        problem = "; ".join(problems(path))
    except ClawError as error:
        problem = str(error)
    return problem or None


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The tasks to try."""

    folder: Path = flag(TASKS, "folder of the tasks", positional=True)


def main(words: Sequence[str] | None = None) -> int:
    flags = parse(Checked, words, "python -m terminal_rl.check", (__doc__ or "").split("\n")[0])
    try:
        paths = task_folders(flags.folder)
    except ClawError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(2) as threads:
        reports = list(zip(paths, threads.map(report, paths), strict=True))
    for path, wrong in reports:
        print(f"{'WRONG' if wrong else 'good '} {path.name}{': ' + wrong if wrong else ''}")
    return int(any(wrong for _, wrong in reports))


if __name__ == "__main__":
    sys.exit(main())
