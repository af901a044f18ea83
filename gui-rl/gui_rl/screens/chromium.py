"""The system's Chromium, driven by Playwright: one browser for all episodes of an event loop, one context for each."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from gui_rl.screens.accessibility import shown_page
from gui_rl.screens.actions import Click, Coordinates, Drag, GuiAction, Move, Point, Press, Scroll, Type
from gui_rl.screens.page_scripts import EDITING, NOTICE_LEAVING, PAINTED, READ, SETTLED, VIEW
from gui_rl.screens.protocol import ScreenSize, Shown, Tab
from gui_rl.screens.sites import HEADER, SiteServer, Visit
from slime.errors import ConfigError, EnvironmentAway

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Dialog, Page

logger = logging.getLogger(__name__)
NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 120_000  # milliseconds after which a browser that does not answer counts as lost
END_SECONDS = 20.0
OFF = (
    # each needs a process for each context, which uses more memory than the page
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
    # Playwright's own list, repeated because Chromium uses only the last such flag
    "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding",
    "ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "TcpPortRandomizationWin",
    "OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch",
    "msForceBrowserSignIn", "msEdgeUpdateLaunchServicesPreferredVersion",
)  # fmt: skip
"""Chromium features to disable."""
FLAGS = (
    f"--disable-features={','.join(OFF)}",
    "--no-sandbox",  # the pages are ours, and containers often do not allow namespaces
    "--disable-gpu",
    "--disable-smooth-scrolling",
    "--renderer-process-limit=64",
    "--force-prefers-reduced-motion",
)


def executable() -> str:
    """Returns the path of the browser. Raises ConfigError if there is no browser, or no Playwright."""
    try:
        import playwright.async_api  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "SCREENSHOT_BACKEND=playwright needs its package: pip install playwright"
        ) from error
    if browser := next(filter(None, map(shutil.which, NAMES)), None):
        return browser
    raise ConfigError("SCREENSHOT_BACKEND=playwright needs a browser; Debian: apt-get install chromium")


@asynccontextmanager
async def reaching_the_browser() -> AsyncIterator[None]:
    """Converts Playwright's errors and time-outs into EnvironmentAway, because a page that does not respond is not a
    failed task."""
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(WAIT_MS / 1000):
            yield
    except (Error, TimeoutError) as error:
        first = str(error).partition("\n")[0] or type(error).__name__
        raise EnvironmentAway(f"the browser does not answer: {first}") from error


class Chromium:
    """Starts a browser for the first screen, and a new one after a crash.

    Attributes:
        starts: number of browsers started so far.
    """

    def __init__(self, size: ScreenSize, sites: SiteServer | None = None) -> None:
        self.size, self.sites = size, sites or SiteServer()
        self.starts = 0
        self._starting = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    async def screen(self, visit: Visit) -> PlaywrightScreen:

        try:
            async with reaching_the_browser():
                return await PlaywrightScreen.begin(await self._context(visit))
        except EnvironmentAway:
            async with self._starting:
                await self._end()  # the next screen gets a new browser
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
        """Returns the server of the sites. Starts it if needed; the browser needs its address."""
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
            logger.warning("the browser has crashed; another one is started")
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
                    logger.warning("the browser did not close cleanly: %s", error)

    async def close(self) -> None:
        async with self._starting:
            await self._end()
            await self.sites.stop()


DRAG_STEPS = 6
LOOK_AGAIN = 0.01  # seconds


class PlaywrightScreen:
    """One episode's browser context. Create it with `begin`."""

    desktop = None

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.pages: list[Page] = []
        self.pointer = (0.0, 0.0)
        self.notes: list[str] = []
        self._sessions: dict[Page, CDPSession] = {}

    @classmethod
    async def begin(cls, context: BrowserContext) -> PlaywrightScreen:
        screen = cls(context)
        context.on("page", screen._opened)
        context.on("dialog", screen._dialog)
        await context.add_init_script(NOTICE_LEAVING)
        return screen

    def _opened(self, page: Page) -> None:
        self.pages.append(page)
        page.on("close", lambda: self.pages.remove(page))

    async def _dialog(self, dialog: Dialog) -> None:
        self.notes.append(f"(a window said {dialog.message!r} and was closed)")
        await dialog.dismiss()

    @property
    def page(self) -> Page:
        """The active tab: the newest open one."""
        return self.pages[-1]

    async def open(self, urls: list[str]) -> None:
        async with reaching_the_browser():
            for url in urls or ["about:blank"]:
                page = await self.context.new_page()
                await page.goto(url)

    async def act(self, action: GuiAction) -> None:
        async with reaching_the_browser():
            if not self.pages:
                await self.context.new_page()
            await self._do(action)
            await self._settled()

    async def _do(self, action: GuiAction) -> None:
        mouse, keyboard = self.page.mouse, self.page.keyboard
        match action:
            case Move(at):
                await self._point(at)
            case Click(at, button, count):
                await self._point(at)
                await mouse.click(*self.pointer, button=button, click_count=count)
            case Drag(end, start):
                await self._point(start)
                await mouse.down()
                self.pointer = self._pixels(end)
                await mouse.move(*self.pointer, steps=DRAG_STEPS)
                await mouse.up()
            case Type(text):
                await self._type(text)
            case Press(keys, times):
                for _ in range(times):
                    await keyboard.press("+".join(keys))
            case Scroll(up, left, at):
                await self._point(at)
                await mouse.wheel(-left, -up)
                await self.page.evaluate(PAINTED)

    async def _point(self, at: Point | None) -> None:
        if at is not None:
            self.pointer = self._pixels(at)
            await self.page.mouse.move(*self.pointer)

    def _pixels(self, at: Point) -> tuple[float, float]:
        size = self.page.viewport_size
        assert size is not None
        return at.x * size["width"], at.y * size["height"]

    async def _type(self, text: str) -> None:
        """Types text through the input-method interface, so that any characters work. Line ends and tabs are pressed
        as keys. If no text field is active, all characters are pressed as keys."""
        for number, line in enumerate(text.split("\n")):
            if number:
                await self.page.keyboard.press("Enter")
            for place, part in enumerate(line.split("\t")):
                if place:
                    await self.page.keyboard.press("Tab")
                if part and await self.page.evaluate(EDITING):
                    await self.page.keyboard.insert_text(part)
                elif part:
                    await self.page.keyboard.type(part)

    async def _settled(self) -> None:
        """Waits until the visible tab has loaded the result of an action."""
        from playwright.async_api import Error

        ends = asyncio.get_running_loop().time() + WAIT_MS / 1000
        while self.pages and asyncio.get_running_loop().time() < ends:
            try:
                if await self.page.evaluate(SETTLED):
                    return
            except Error as error:
                if "navigat" not in str(error) and not self.page.is_closed():
                    raise
            await asyncio.sleep(LOOK_AGAIN)

    async def shown(self, unit: Coordinates) -> Shown:
        async with reaching_the_browser():
            notes, self.notes = self.notes, []
            if not self.pages:
                return Shown([], [*notes, "(no window is open)"])
            session = await self._session()
            place = await self.page.evaluate(VIEW)
            tree = await session.send("Accessibility.getFullAXTree")
            snapshot = await session.send("DOMSnapshot.captureSnapshot", {"computedStyles": []})
        return shown_page(tree, snapshot, place, unit, notes)

    async def _session(self) -> CDPSession:
        if self.page not in self._sessions:
            self._sessions[self.page] = await self.context.new_cdp_session(self.page)
        return self._sessions[self.page]

    async def png(self) -> bytes:
        async with reaching_the_browser():
            if not self.pages:
                await self.context.new_page()
            return await self.page.screenshot(animations="disabled", caret="initial")

    async def tabs(self) -> list[Tab]:
        async with reaching_the_browser():
            return [Tab(await page.title(), page.url) for page in self.pages]

    async def active(self) -> Tab:
        tabs = await self.tabs()
        return tabs[-1] if tabs else Tab("", "")

    async def read(self, selector: str, name: str) -> list[Any]:
        async with reaching_the_browser():
            return list(await self.page.evaluate(READ, [selector, name])) if self.pages else []

    async def close(self) -> None:
        """Closes the context and deletes its data. Does nothing if the browser is gone."""
        from playwright.async_api import Error

        try:
            await asyncio.wait_for(self.context.close(), END_SECONDS)
        except (Error, TimeoutError):
            return
