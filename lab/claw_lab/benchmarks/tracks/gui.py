"""Measures the episodes per hour of a scripted agent in one browser, and the processes and files left behind.

bash lab/run.sh benchmarks.tracks.gui [--episodes 400] [--parallel 8] [--pictures] [--backend selenium]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from claw_lab.tiny_models.gui.data import errands
from claw_lab.tiny_models.gui.pages import Errand
from gui_rl.episode.environment import GuiEnvironment, GuiSettings
from gui_rl.episode.reading import GuiFormat
from gui_rl.episode.scripted import play
from gui_rl.episode.surroundings import BACKENDS, Backend, Surroundings
from gui_rl.screens.actions import Coordinates
from gui_rl.screens.protocol import ScreenSize
from slime.sandbox.places import base_folder

SIZE = ScreenSize(640, 400)


def script_of(task: Errand) -> list[list[str]]:
    """Returns the actions that solve a task."""
    steps = [["write", name] if kind == "write" else ["click", kind, name] for kind, name in task.steps]
    return [*steps, ["done"]]


def processes() -> int:
    """Returns the number of processes below this one, without ended ones."""
    ended = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return sum(child.status() not in ended for child in psutil.Process().children(recursive=True))


def profiles() -> int:
    """Returns the number of browser profiles and of desktop folders."""
    folder = Path(tempfile.gettempdir())
    return len([*folder.glob("playwright*profile*"), *base_folder().iterdir()])


async def measure(
    episodes: int, parallel: int, pictures: bool, backend: Backend = "playwright"
) -> dict[str, Any]:
    """Plays `episodes`, `parallel` at a time, after `parallel` that are not counted."""
    surroundings, places = Surroundings(SIZE, backend), asyncio.Semaphore(parallel)
    unit = Coordinates(True, SIZE.width, SIZE.height)
    settings = GuiSettings(unit=unit, observation="screenshot_a11y_tree" if pictures else "a11y_tree")
    format, tasks = GuiFormat(unit), errands(min(episodes, 400), 0)
    before = processes(), profiles()

    async def one(number: int) -> bool:
        task = tasks[number % len(tasks)]
        async with places:
            outcome = await play(
                GuiEnvironment(settings, surroundings), format, task.row()["metadata"], script_of(task)
            )
        return outcome.solved

    await asyncio.gather(*map(one, range(parallel)))
    idle, began = processes(), time.monotonic()
    solved = sum(await asyncio.gather(*map(one, range(episodes))))
    seconds = time.monotonic() - began
    browser = surroundings.here()
    results = {
        "episodes": episodes,
        "solved": solved,
        "seconds": round(seconds, 1),
        "episodes_per_hour": round(3600 * episodes / seconds),
        "browser_starts": browser.starts,
        "more_processes_after": processes() - idle,
        "visits_left": len(browser.sites.visits),
    }
    await surroundings.close()
    return {**results, "processes_left": processes() - before[0], "profiles_left": profiles() - before[1]}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bash lab/run.sh benchmarks.tracks.gui",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--parallel", type=int, default=8, help="episodes at a time")
    parser.add_argument("--pictures", action="store_true", help="take a screenshot in each turn")
    parser.add_argument("--backend", choices=BACKENDS, default="playwright", help="browser driver")
    args = parser.parse_args(words)
    print(json.dumps(asyncio.run(measure(args.episodes, args.parallel, args.pictures, args.backend))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
