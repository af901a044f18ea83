"""The interface between a screen and an environment, independent of the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gui_rl.screens.actions import Coordinates, GuiAction
from gui_rl.screens.sites import Visit
from gui_rl.screens.tree import Element
from slime.sandbox import Finished


@dataclass(frozen=True)
class ScreenSize:
    """Size in pixels."""

    width: int = 1280
    height: int = 800


@dataclass(frozen=True)
class Tab:
    title: str
    url: str


@dataclass(frozen=True)
class Shown:
    """The screen as text: its elements, and notes."""

    elements: list[Element]
    notes: list[str]


class Desktop(Protocol):
    """Programs on the browser's desktop. Its methods raise EnvironmentAway if the desktop is lost."""

    async def launch(self, words: Sequence[str]) -> None:
        """Starts a program and waits for its window. Raises TaskError if it is not installed."""
        ...

    async def run(self, command: str | Sequence[str], shell: bool) -> Finished:
        """Runs a command in its own sandbox, with the files of the home folder."""
        ...

    async def file(self, path: str) -> bytes | None:
        """Returns a file of the home folder; None if there is none."""
        ...

    async def window(self, name: str, strict: bool, what: Literal["windowactivate", "windowclose"]) -> bool:
        """Activates or closes the first window with this name, or with it in its name; returns whether there is
        one."""
        ...


class OpenScreen(Protocol):
    """The screen of one episode. Its methods raise EnvironmentAway if the browser is lost."""

    @property
    def desktop(self) -> Desktop | None:
        """Returns the desktop; None if there is only a browser."""
        ...

    async def open(self, urls: list[str]) -> None:
        """Opens tabs; the last one is visible."""
        ...

    async def act(self, action: GuiAction) -> None:
        """Carries out an action, and waits until its effects have ended. Wait and Finish are handled elsewhere."""
        ...

    async def shown(self, unit: Coordinates) -> Shown: ...

    async def png(self) -> bytes: ...

    async def tabs(self) -> list[Tab]:
        """Returns the tabs in the order in which they were opened."""
        ...

    async def active(self) -> Tab: ...

    async def read(self, selector: str, name: str) -> list[Any]:
        """Returns a property of the elements that match a CSS selector, in the visible tab."""
        ...

    async def close(self) -> None: ...


class Screens(Protocol):
    """Creates screens."""

    async def screen(self, visit: Visit) -> OpenScreen:
        """Returns a new screen without cookies, cache, storage or history of other episodes. Raises
        EnvironmentAway."""
        ...
