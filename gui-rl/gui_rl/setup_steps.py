"""Config steps of a task, as far as a browser alone can make them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from gui_rl.screens import OpenScreen
from gui_rl.task import Json, TaskError

MOST_SECONDS = 60.0
BROWSERS = {"google-chrome", "chromium", "chromium-browser"}
NOT_NEEDED = {"socat"}
"""Programs that OSWorld's tasks launch to reach its browser from outside."""


async def _open_tabs(screen: OpenScreen, parameters: Json) -> None:
    await screen.open(list(parameters.get("urls_to_open", [])))


async def _launch(screen: OpenScreen, parameters: Json) -> None:
    command = parameters.get("command", [])
    words = command.split() if isinstance(command, str) else list(command)
    program = str(words[0]).rpartition("/")[2] if words else ""
    if program in BROWSERS:
        if urls := [word for word in words[1:] if word.startswith(("http://", "https://"))]:
            await screen.open(urls)
    elif program not in NOT_NEEDED:
        raise TaskError(f"config step launch: {program or 'nothing'} is not there; a page has no programs")


async def _sleep(screen: OpenScreen, parameters: Json) -> None:
    await asyncio.sleep(min(MOST_SECONDS, float(parameters.get("seconds", 1))))


STEPS: Mapping[str, Callable[[OpenScreen, Json], Awaitable[None]]] = {
    "chrome_open_tabs": _open_tabs,
    "launch": _launch,
    "sleep": _sleep,
}


def refused_step(steps: Sequence[Json]) -> str | None:
    """Why steps cannot be made, in words; None where they can."""
    for step in steps:
        if step["type"] not in STEPS:
            return f"config step {step['type']} needs a desktop"
        command = step["parameters"].get("command", [])
        words = command.split() if isinstance(command, str) else list(command)
        if step["type"] == "launch" and words and words[0] not in BROWSERS | NOT_NEEDED:
            return f"config step launch of {words[0]} needs a desktop"
    return None


async def make(screen: OpenScreen, steps: Sequence[Json]) -> None:
    """Raises TaskError for one that there is not, EnvironmentAway."""
    for step in steps:
        if step["type"] not in STEPS:
            raise TaskError(f"config step {step['type']} needs a desktop; known: {', '.join(STEPS)}")
        await STEPS[step["type"]](screen, step["parameters"])
