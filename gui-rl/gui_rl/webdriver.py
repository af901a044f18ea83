"""Chromium driven by Selenium: one chromedriver for all episodes of an event loop, a browser of its own for each."""

from __future__ import annotations

import asyncio
import ctypes
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gui_rl.chromium import FLAGS, NAMES, WAIT_MS, ScreenSize
from gui_rl.sites import SiteServer, Visit
from slime.errors import ConfigError, EnvironmentAway
from slime.sandbox import Workspace

if TYPE_CHECKING:
    from selenium.webdriver.chrome.service import Service

    from gui_rl.selenium_screen import SeleniumScreen

PR_SET_PDEATHSIG = 1
DRIVERS = ("chromedriver", "chromium-driver", "chromium.chromedriver")


@dataclass(frozen=True)
class Programs:
    """Paths."""

    browser: str
    driver: str


def programs() -> Programs:
    """Raises ConfigError where there is no browser, no driver of it, or no Selenium."""
    try:
        import selenium.webdriver  # noqa: F401
    except ImportError as error:
        raise ConfigError("SCREENSHOT_BACKEND=selenium needs its package: pip install selenium") from error
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    driver = next(filter(None, map(shutil.which, DRIVERS)), None)
    if browser is None or driver is None:
        raise ConfigError(
            "SCREENSHOT_BACKEND=selenium needs a browser and its driver; Debian: apt-get install chromium chromium-driver"
        )
    return Programs(browser, driver)


class Drivers:
    """Starts with the first screen and again when it has died.

    Attributes:
        starts: drivers that were started.
    """

    def __init__(self, size: ScreenSize, sites: SiteServer | None = None) -> None:
        self.size, self.sites = size, sites or SiteServer()
        self.starts = 0
        self._starting = asyncio.Lock()
        self._service: Service | None = None
        self._spawner = ThreadPoolExecutor(
            1, thread_name_prefix="chromedriver"
        )  # children end with their thread

    async def ready(self) -> SiteServer:
        """The server of the sites."""
        async with self._starting:
            if not self.sites.address:
                await self.sites.start()
        return self.sites

    async def screen(self, visit: Visit) -> SeleniumScreen:
        from gui_rl.selenium_screen import SeleniumScreen

        sites = await self.ready()
        url = await self._running()
        proxy = await sites.open_for(visit)
        profile = await asyncio.to_thread(
            Workspace, place="/profile"
        )  # is removed also where this process is killed

        async def end() -> None:
            await sites.close_for(visit)
            await asyncio.to_thread(profile.close)

        try:
            return await SeleniumScreen.begin(url, self._options(proxy, profile.path), self.size, end)
        except EnvironmentAway:
            await end()
            async with self._starting:
                await self._end()  # the next one gets another driver
            raise

    def _options(self, proxy: str, profile: Path) -> Any:
        from selenium.webdriver import ChromeOptions

        options = ChromeOptions()
        options.binary_location = programs().browser
        options.unhandled_prompt_behavior = "ignore"
        options.page_load_strategy = "normal"
        options.timeouts = {"script": WAIT_MS, "pageLoad": WAIT_MS}
        for flag in (
            *FLAGS,
            "--headless=new",
            "--remote-debugging-pipe",
            "--lang=en-US",
            "--no-first-run",
            f"--user-data-dir={profile}",
            f"--window-size={self.size.width},{self.size.height}",
            f"--proxy-server={proxy}",
            "--proxy-bypass-list=<-loopback>",
        ):
            options.add_argument(flag)
        return options

    async def _running(self) -> str:
        async with self._starting:
            service = self._service
            if service is None or service.process is None or service.process.poll() is not None:
                loop = asyncio.get_running_loop()
                self._service = service = await loop.run_in_executor(self._spawner, _started)
                self.starts += 1
            return str(service.service_url)

    async def _end(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            await asyncio.to_thread(service.stop)

    async def close(self) -> None:
        async with self._starting:
            await self._end()
            await self.sites.stop()
        self._spawner.shutdown(wait=False)


def _started() -> Service:
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.service import Service

    settings = {"preexec_fn": _end_with_parent, "start_new_session": True}
    service = Service(programs().driver, popen_kw=settings)
    try:
        service.start()
    except WebDriverException as error:
        raise EnvironmentAway(f"chromedriver does not start: {error.msg}") from error
    return service


def _end_with_parent() -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
