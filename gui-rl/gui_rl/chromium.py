"""One Chromium of the system, driven by Playwright, for all episodes of an event loop; a context of its own for each."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gui_rl.sites import HEADER, SiteServer, Visit
from slime.errors import ConfigError, EnvironmentAway

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright

    from gui_rl.playwright_screen import PlaywrightScreen

logger = logging.getLogger(__name__)
NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 120_000  # until a browser that does not answer counts as gone
END_SECONDS = 20.0
OFF = (
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",  # for each context a process, which takes more than its page
    # Playwright's own, as Chromium reads the last such flag alone
    "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding",
    "ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "TcpPortRandomizationWin",
    "OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch",
    "msForceBrowserSignIn", "msEdgeUpdateLaunchServicesPreferredVersion",
)  # fmt: skip
"""Features of Chromium."""
FLAGS = (
    f"--disable-features={','.join(OFF)}",
    "--no-sandbox",  # pages are ours, and containers often allow no namespaces
    "--disable-gpu",
    "--disable-smooth-scrolling",
    "--renderer-process-limit=64",
    "--force-prefers-reduced-motion",
)


@dataclass(frozen=True)
class ScreenSize:
    """In pixels."""

    width: int = 1280
    height: int = 800


def executable() -> str:
    """Raises ConfigError where there is no browser, or no Playwright to drive it."""
    try:
        import playwright.async_api  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "SCREENSHOT_BACKEND=playwright needs its package: pip install playwright"
        ) from error
    if found := next(filter(None, map(shutil.which, NAMES)), None):
        return found
    raise ConfigError("SCREENSHOT_BACKEND=playwright needs a browser; Debian: apt-get install chromium")


@asynccontextmanager
async def reaching_the_browser() -> AsyncIterator[None]:
    """Turns what Playwright raises, and a wait that is too long, into EnvironmentAway: a page that does not answer is
    nobody's failed task."""
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(WAIT_MS / 1000):
            yield
    except (Error, TimeoutError) as error:
        first = str(error).partition("\n")[0] or type(error).__name__
        raise EnvironmentAway(f"the browser does not answer: {first}") from error


class Chromium:
    """Starts with the first screen and again when it has died.

    Attributes:
        starts: browsers that were started.
    """

    def __init__(self, size: ScreenSize, sites: SiteServer | None = None) -> None:
        self.size, self.sites = size, sites or SiteServer()
        self.starts = 0
        self._starting = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    async def screen(self, visit: Visit) -> PlaywrightScreen:
        from gui_rl.playwright_screen import PlaywrightScreen

        try:
            async with reaching_the_browser():
                return await PlaywrightScreen.begin(await self._context(visit))
        except EnvironmentAway:
            async with self._starting:
                await self._end()  # the next one gets another browser
            raise

    async def _context(self, visit: Visit) -> BrowserContext:
        browser = await self._running()
        size = {"width": self.size.width, "height": self.size.height}
        context = await browser.new_context(
            viewport=size,  # type: ignore[arg-type]
            extra_http_headers={HEADER: visit.token},
            accept_downloads=False,
            locale="en-US",
            timezone_id="UTC",
            service_workers="block",
        )
        context.set_default_timeout(WAIT_MS)
        return context

    async def ready(self) -> SiteServer:
        """The server of the sites, which the browser needs before it starts."""
        async with self._starting:
            if not self.sites.address:
                await self.sites.start()
        return self.sites

    async def _running(self) -> Browser:
        await self.ready()
        async with self._starting:
            if self._browser is None or not self._browser.is_connected():
                await self._start()
            assert self._browser is not None
            return self._browser

    async def _start(self) -> None:
        from playwright.async_api import async_playwright

        if self._browser is not None:
            logger.warning("the browser has died; another one is started")
            await self._end()
        self._playwright = await async_playwright().start()
        self._browser = await self._playwright.chromium.launch(
            executable_path=executable(),
            args=list(FLAGS),
            proxy={"server": self.sites.address, "bypass": "<-loopback>"},
            timeout=WAIT_MS,
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
        self.starts += 1

    async def _end(self) -> None:
        from playwright.async_api import Error

        browser, driver = self._browser, self._playwright
        self._browser = self._playwright = None
        for end in (browser and browser.close, driver and driver.stop):
            if end:
                try:
                    await asyncio.wait_for(end(), END_SECONDS)
                except (Error, OSError, TimeoutError) as error:
                    logger.warning("the browser does not end in order: %s", error)

    async def close(self) -> None:
        async with self._starting:
            await self._end()
            await self.sites.stop()
