"""The interface of a screen to an environment, whatever draws it."""

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
    """In pixels."""

    width: int = 1280
    height: int = 800


@dataclass(frozen=True)
class Tab:
    title: str
    url: str


@dataclass(frozen=True)
class Shown:
    """The screen as text: its elements, and remarks on them."""

    elements: list[Element]
    notes: list[str]


class Desktop(Protocol):
    """Programs around the browser. Its methods raise EnvironmentAway where the desktop is gone."""

    async def launch(self, words: Sequence[str]) -> None:
        """Starts a program and waits for its window. Raises TaskError if it is not installed."""
        ...

    async def run(self, command: str | Sequence[str], shell: bool) -> Finished:
        """A command in a box of its own, with the files of the home."""
        ...

    async def file(self, path: str) -> bytes | None:
        """None if there is no such file in the home."""
        ...

    async def window(self, name: str, strict: bool, what: Literal["windowactivate", "windowclose"]) -> bool:
        """Does that with the first window of this name, or with it in its name; whether there is one."""
        ...


class OpenScreen(Protocol):
    """The screen of one episode. Its methods raise EnvironmentAway where the browser is gone."""

    @property
    def desktop(self) -> Desktop | None:
        """None for a browser alone."""
        ...

    async def open(self, urls: list[str]) -> None:
        """Opens tabs; the last one is in front."""
        ...

    async def act(self, action: GuiAction) -> None:
        """Acts, and waits until what it began has ended. Wait and Finish are not for a screen."""
        ...

    async def shown(self, unit: Coordinates) -> Shown: ...

    async def png(self) -> bytes: ...

    async def tabs(self) -> list[Tab]:
        """In the order in which they were opened."""
        ...

    async def active(self) -> Tab: ...

    async def read(self, selector: str, name: str) -> list[Any]:
        """Returns a property of the elements that match a CSS selector, in the tab in front."""
        ...

    async def close(self) -> None: ...


class Screens(Protocol):
    """The source of screens."""

    async def screen(self, visit: Visit) -> OpenScreen:
        """Returns a fresh one: no cookie, cache, storage or history of another episode. Raises EnvironmentAway."""
        ...
