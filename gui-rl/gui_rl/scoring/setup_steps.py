"""Setup steps of a task: those that a browser alone supports, and those that need a desktop."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from gui_rl.scoring.task import Json, TaskError
from gui_rl.screens.protocol import Desktop, OpenScreen

MOST_SECONDS = 60.0
WEB = ("http://", "https://")
BROWSERS = {"google-chrome", "chromium", "chromium-browser"}
NOT_NEEDED = {"socat"}
"""Programs that OSWorld's tasks launch to reach the browser from outside; they are not needed here."""
NOT_THERE = ("pyautogui", "{CLIENT_PASSWORD}", "sudo ", "gnome", "dbus")
"""Words in commands of OSWorld's tasks that need features of its virtual machine, which this desktop lacks."""
Step = Callable[[OpenScreen, Json], Awaitable[None]]


async def _open_tabs(screen: OpenScreen, parameters: Json) -> None:
    await _open(screen, list(parameters.get("urls_to_open", [])))


async def _open(screen: OpenScreen, urls: list[str]) -> None:
    """Opens tabs. Only the browser of a desktop runs in a sandbox; any other could show files of this machine, or its
    own settings, to the agent. Raises TaskError."""
    for url in urls if screen.desktop is None else ():
        if not url.lower().startswith(WEB) and url != "about:blank":
            raise TaskError(f"config step chrome_open_tabs: {url!r} is no address of a site")
    await screen.open(urls)


async def _launch(screen: OpenScreen, parameters: Json) -> None:
    words = _words(parameters)
    program = words[0].rpartition("/")[2] if words else ""
    if program in BROWSERS:
        if urls := [word for word in words[1:] if word.startswith(WEB)]:
            await _open(screen, urls)
    elif program not in NOT_NEEDED:
        await desktop_of(screen, f"config step launch of {program or 'nothing'}").launch(words)


async def _sleep(screen: OpenScreen, parameters: Json) -> None:
    await asyncio.sleep(min(MOST_SECONDS, float(parameters.get("seconds", 1))))


async def _execute(screen: OpenScreen, parameters: Json) -> None:
    """Runs a command. As in OSWorld, a failing command is not an error: only the resulting files count."""
    desktop = desktop_of(screen, "config step execute")
    await desktop.run(parameters["command"], bool(parameters.get("shell", False)))


async def _activate(screen: OpenScreen, parameters: Json) -> None:
    desktop = desktop_of(screen, "config step activate_window")
    await desktop.window(
        str(parameters["window_name"]), bool(parameters.get("strict", False)), "windowactivate"
    )


async def _close(screen: OpenScreen, parameters: Json) -> None:
    desktop = desktop_of(screen, "config step close_window")
    await desktop.window(str(parameters["window_name"]), bool(parameters.get("strict", False)), "windowclose")


STEPS: Mapping[str, Step] = {"chrome_open_tabs": _open_tabs, "launch": _launch, "sleep": _sleep}
DESKTOP_STEPS: Mapping[str, Step] = {
    "execute": _execute,
    "command": _execute,
    "activate_window": _activate,
    "close_window": _close,
}


def desktop_of(screen: OpenScreen, what: str) -> Desktop:
    """Returns the desktop. Raises TaskError if there is none; the message names `what` needs it."""
    if screen.desktop is None:
        raise TaskError(f"{what} needs a desktop: SCREENSHOT_BACKEND=xvfb")
    return screen.desktop


def _words(parameters: Json) -> list[str]:
    command: Any = parameters.get("command", [])
    return shlex.split(command) if isinstance(command, str) else [str(word) for word in command]


def refused_step(steps: Sequence[Json], desktop: bool = False) -> str | None:
    """Returns why steps are impossible here; None if they are possible.

    Args:
        desktop: whether the browser runs on a desktop.
    """
    for step in steps:
        kind = step["type"]
        if kind not in STEPS and not (desktop and kind in DESKTOP_STEPS):
            return f"config step {kind} " + (
                "needs a desktop" if kind in DESKTOP_STEPS else "is not known here"
            )
        words = _words(step["parameters"])
        if kind == "launch" and words and words[0] not in BROWSERS | NOT_NEEDED and not desktop:
            return f"config step launch of {words[0]} needs a desktop"
        if missing := next((one for one in NOT_THERE if one in " ".join(words)), None):
            return f"config step {kind} needs {missing.strip()}"
    return None


async def make(screen: OpenScreen, steps: Sequence[Json]) -> None:
    """Carries out setup steps. Raises TaskError for an unknown or malformed step; EnvironmentAway."""
    known = {**STEPS, **DESKTOP_STEPS}
    for step in steps:
        if step["type"] not in known:
            raise TaskError(f"there is no config step {step['type']}; known: {', '.join(known)}")
        try:
            await known[step["type"]](screen, step["parameters"])
        except (KeyError, ValueError) as error:
            raise TaskError(f"config step {step['type']}: {type(error).__name__} {error}") from error
