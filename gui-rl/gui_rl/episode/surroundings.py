"""Browsers of this process: one backend for each event loop, created for its first episode."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal, Protocol, get_args
from weakref import WeakKeyDictionary

from gui_rl.desktop.desktops import Desktops, require_desktop
from gui_rl.screens import chromium, webdriver
from gui_rl.screens.protocol import Screens, ScreenSize
from gui_rl.screens.sites import SiteServer

Backend = Literal["playwright", "selenium", "xvfb"]
BACKENDS = get_args(Backend)


class Browser(Screens, Protocol):
    """A backend that creates screens.

    Attributes:
        starts: number of starts of the program that drives browsers.
    """

    sites: SiteServer
    starts: int

    async def ready(self) -> SiteServer: ...

    async def close(self) -> None: ...


_MAKE: Mapping[str, Callable[[ScreenSize], Browser]] = {
    "playwright": chromium.Chromium,
    "selenium": webdriver.Drivers,
    "xvfb": Desktops,
}
_CHECK: Mapping[str, Callable[[], object]] = {
    "playwright": chromium.executable,
    "selenium": webdriver.programs,
    "xvfb": require_desktop,
}


def require_backend(backend: Backend) -> None:
    """Raises ConfigError if a required program or package is missing."""
    _CHECK[backend]()


class Surroundings:
    """The browsers of all event loops; their driver ends them at the latest when this process exits."""

    def __init__(self, size: ScreenSize, backend: Backend = "playwright") -> None:
        self.size, self.backend = size, backend
        self._browsers: WeakKeyDictionary[asyncio.AbstractEventLoop, Browser] = WeakKeyDictionary()

    def here(self) -> Browser:
        """Returns the browser of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._browsers:
            self._browsers[loop] = _MAKE[self.backend](self.size)
        return self._browsers[loop]

    async def close(self) -> None:
        """Closes the browser of the running loop."""
        if (browser := self._browsers.pop(asyncio.get_running_loop(), None)) is not None:
            await browser.close()
