"""Browsers of this process: one for each event loop, made when its first episode begins."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from gui_rl.chromium import Chromium, ScreenSize


class Surroundings:
    """Browsers end with the process at the latest: Playwright's driver ends them when its pipe is closed."""

    def __init__(self, size: ScreenSize) -> None:
        self.size = size
        self._browsers: WeakKeyDictionary[asyncio.AbstractEventLoop, Chromium] = WeakKeyDictionary()

    def here(self) -> Chromium:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._browsers:
            self._browsers[loop] = Chromium(self.size)
        return self._browsers[loop]

    async def close(self) -> None:
        """Ends that of the running loop."""
        if (browser := self._browsers.pop(asyncio.get_running_loop(), None)) is not None:
            await browser.close()
