"""Validates tasks: their solutions must solve them; doing nothing, and their cheats, must not.

python -m gui_rl.check [FOLDER] [--parallel 8] [--only ID ...]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from claw_base.settings.command_line import parse
from claw_base.settings.declare import flag
from gui_rl.episode.environment import GuiEnvironment, GuiSettings
from gui_rl.episode.reading import GuiFormat
from gui_rl.episode.scripted import ScriptError, play
from gui_rl.episode.surroundings import Backend, Surroundings
from gui_rl.scoring.task import GuiTask, TaskError, read_json, task_from
from gui_rl.screens.actions import Coordinates
from gui_rl.screens.protocol import ScreenSize
from slime.errors import ClawError

TASKS = Path(__file__).parents[1] / "tasks"
DONE: Sequence[Sequence[str]] = (("done",),)


@dataclass(frozen=True)
class Verdicts:
    """The attempts that solved a task; `problem`: a script could not be played."""

    name: str
    solution: bool
    nothing: bool
    cheat: bool
    problem: str = ""

    @property
    def trusted(self) -> bool:
        return self.solution and not (self.nothing or self.cheat or self.problem)


def task_names(folder: Path, only: Sequence[str] = ()) -> list[str]:
    """Returns DOMAIN/ID.json of the tasks in a folder, or only those in `only`. Raises TaskError if there are
    none."""
    paths = [path for path in folder.glob("*/*.json") if not only or path.stem in only]
    names = sorted(path.relative_to(folder).as_posix() for path in paths)
    if not names:
        raise TaskError(f"{folder} contains no tasks: DOMAIN/ID.json")
    return names


async def check(task: GuiTask, config: object, settings: GuiSettings, surroundings: Surroundings) -> Verdicts:
    """Runs three attempts at a task, one after the other."""
    format, solved = GuiFormat(settings.unit), []
    about = {"domain": task.domain, "task_config": config}
    try:
        for script in (task.solution, DONE, task.cheat):
            outcome = await play(GuiEnvironment(settings, surroundings), format, about, script)
            solved.append(outcome.solved)
    except ScriptError as error:
        return Verdicts(task.name, False, False, False, str(error))
    return Verdicts(task.name, *solved)


async def check_all(
    folder: Path, parallel: int, only: Sequence[str] = (), backend: Backend = "playwright"
) -> list[Verdicts]:
    """Checks all tasks of a folder. Raises TaskError, EnvironmentAway."""
    size = ScreenSize()
    settings = GuiSettings(unit=Coordinates(True, size.width, size.height))
    surroundings, places = Surroundings(size, backend), asyncio.Semaphore(parallel)

    async def one(name: str) -> Verdicts:
        config = read_json(folder, name)
        async with places:
            return await check(task_from(config, name.partition("/")[0]), config, settings, surroundings)

    try:
        return list(await asyncio.gather(*map(one, task_names(folder, only))))
    finally:
        await surroundings.close()


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The tasks to try, and the screen."""

    folder: Path = flag(TASKS, "tasks as DOMAIN/ID.json", positional=True)
    parallel: int = flag(8, "concurrent episodes")
    only: list[str] = flag([], "check only these tasks", unit="ID")
    backend: Backend = flag("playwright", "browser driver")


def main(words: Sequence[str] | None = None) -> int:
    flags = parse(Checked, words, "python -m gui_rl.check", __doc__)
    try:
        results = asyncio.run(check_all(flags.folder, flags.parallel, flags.only, flags.backend))
    except ClawError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for one in results:
        if not one.trusted:
            print(
                f"{one.name}: solution {one.solution}, nothing {one.nothing}, cheat {one.cheat} {one.problem}"
            )
    counts = [sum(getattr(one, kind) for one in results) for kind in ("solution", "nothing", "cheat")]
    print(
        f"{len(results)} tasks: {counts[0]} solutions, {counts[1]} empty attempts and {counts[2]} cheats solve theirs"
    )
    return 0 if all(one.trusted for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
