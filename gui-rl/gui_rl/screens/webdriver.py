"""Chromium driven by Selenium: one chromedriver for all episodes of an event loop, with a browser for each."""

from __future__ import annotations

import asyncio
import ctypes
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gui_rl.screens.accessibility import shown_page
from gui_rl.screens.actions import Click, Coordinates, Drag, GuiAction, Move, Point, Press, Scroll, Type
from gui_rl.screens.chromium import END_SECONDS, FLAGS, NAMES, WAIT_MS
from gui_rl.screens.page_scripts import EDITING, NOTICE_LEAVING, PAINTED, READ, SETTLED, VIEW
from gui_rl.screens.protocol import ScreenSize, Shown, Tab
from gui_rl.screens.sites import SiteServer, Visit
from slime.errors import ConfigError, EnvironmentAway
from slime.sandbox import Workspace

if TYPE_CHECKING:
    from selenium.webdriver.chrome.service import Service

if TYPE_CHECKING:
    from selenium.webdriver import Remote

PR_SET_PDEATHSIG = 1
DRIVERS = ("chromedriver", "chromium-driver", "chromium.chromedriver")


@dataclass(frozen=True)
class Programs:
    """Paths of browser and driver."""

    browser: str
    driver: str


def programs() -> Programs:
    """Returns the installed programs. Raises ConfigError if browser, driver or Selenium is missing."""
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
    """Starts chromedriver for the first screen, and again after it has died.

    Attributes:
        starts: number of started drivers.
    """

    def __init__(self, size: ScreenSize, sites: SiteServer | None = None) -> None:
        self.size, self.sites = size, sites or SiteServer()
        self.starts = 0
        self._starting = asyncio.Lock()
        self._service: Service | None = None
        # children are killed when the thread that started them ends
        self._spawner = ThreadPoolExecutor(1, thread_name_prefix="chromedriver")

    async def ready(self) -> SiteServer:
        """Returns the server of the sites."""
        async with self._starting:
            if not self.sites.address:
                await self.sites.start()
        return self.sites

    async def screen(self, visit: Visit) -> SeleniumScreen:

        sites = await self.ready()
        url = await self._running()
        proxy = await sites.open_for(visit)
        # removed even if this process is killed
        profile = await asyncio.to_thread(Workspace, place="/profile")

        async def end() -> None:
            await sites.close_for(visit)
            await asyncio.to_thread(profile.close)

        try:
            return await SeleniumScreen.begin(url, self._options(proxy, profile.path), self.size, end)
        except EnvironmentAway:
            await end()
            async with self._starting:
                await self._end()  # the next screen gets a new driver
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


BUTTONS = {"left": 0, "middle": 1, "right": 2}
DRAG_STEPS = 6
LOOK_AGAIN = 0.01  # seconds


@asynccontextmanager
async def reaching_the_driver() -> AsyncIterator[None]:
    """Turns Selenium's exceptions and time-outs into EnvironmentAway."""
    from selenium.common.exceptions import WebDriverException
    from urllib3.exceptions import HTTPError

    try:
        async with asyncio.timeout(WAIT_MS / 1000):
            yield
    except (WebDriverException, HTTPError, OSError, TimeoutError) as error:
        first = str(getattr(error, "msg", None) or error).partition("\n")[0] or type(error).__name__
        raise EnvironmentAway(f"the browser does not answer: {first}") from error


def _session(url: str, options: Any) -> Remote:
    from selenium.webdriver import Remote
    from selenium.webdriver.remote.client_config import ClientConfig

    return Remote(url, options=options, client_config=ClientConfig(url, timeout=WAIT_MS // 1000))


class SeleniumScreen:
    """One episode's browser; create it with `begin`. Selenium blocks until each answer, so commands run in their own
    thread."""

    desktop = None

    def __init__(self, driver: Remote, size: ScreenSize, thread: ThreadPoolExecutor) -> None:
        self.driver, self.size = driver, size
        self.windows: list[str] = []
        self._spare = ""  # never visible; keeps the browser running, which exits with its last window
        self.pointer = (0, 0)
        self.notes: list[str] = []
        self._thread = thread
        self._after: Callable[[], Awaitable[None]] | None = None

    @classmethod
    async def begin(
        cls, url: str, options: Any, size: ScreenSize, after: Callable[[], Awaitable[None]]
    ) -> SeleniumScreen:
        """Starts a browser at the driver at `url`; `after` runs once it is closed."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="selenium")
        loop = asyncio.get_running_loop()
        try:
            async with reaching_the_driver():
                driver = await loop.run_in_executor(thread, _session, url, options)
        except EnvironmentAway:
            thread.shutdown(wait=False)
            raise
        screen = cls(driver, size, thread)
        screen._after = after
        screen._spare = await screen._done(lambda: driver.current_window_handle)
        return screen

    async def _done(self, function: Callable[..., Any], *arguments: Any) -> Any:
        async with reaching_the_driver():
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def open(self, urls: list[str]) -> None:
        await self._done(self._open, urls or ["about:blank"])

    def _open(self, urls: list[str]) -> None:
        for url in urls:
            self._dismiss()
            self.driver.switch_to.window(self._spare)
            self.driver.switch_to.new_window("tab")
            self._front()
            self.driver.get(url)

    def _front(self) -> bool:
        """Switches to the newest window and prepares it; returns whether there is one. Dialogs in it are recorded and
        dismissed."""
        self._dismiss()
        handles = [handle for handle in self.driver.window_handles if handle != self._spare]
        new = [handle for handle in handles if handle not in self.windows]
        self.windows = [handle for handle in self.windows if handle in handles] + new
        if not self.windows:
            return False
        self.driver.switch_to.window(self.windows[-1])
        if new:
            self._prepare()
        return True

    def _prepare(self) -> None:
        size = {"width": self.size.width, "height": self.size.height}
        self._tell("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=False)
        self._tell("Emulation.setTimezoneOverride", timezoneId="UTC")
        self._tell("Page.addScriptToEvaluateOnNewDocument", source=NOTICE_LEAVING)

    def _dismiss(self) -> None:
        from selenium.common.exceptions import NoAlertPresentException, NoSuchWindowException

        try:
            while self.windows:
                alert = self.driver.switch_to.alert
                self.notes.append(f"(a window said {alert.text!r} and was closed)")
                alert.dismiss()
        except (NoAlertPresentException, NoSuchWindowException):
            return

    def _tell(self, command: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, parameters)

    def _asked(self, function: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return ({function})(...arguments)", *arguments)

    async def act(self, action: GuiAction) -> None:
        await self._done(self._act, action)
        await self._settled()

    def _act(self, action: GuiAction) -> None:
        if not self._front():
            return
        match action:
            case Move(at):
                self._mouse(at)
            case Click(at, button, count):
                self._mouse(at, *[("down", BUTTONS[button]), ("up", BUTTONS[button])] * count)
            case Drag(end, start):
                self._drag(start, end)
            case Type(text):
                self._type(text)
            case Press(keys, times):
                for _ in range(times):
                    self._press(keys)
            case Scroll(up, left, at):
                self._scroll(up, left, at)

    def _mouse(self, at: Point | None, *buttons: tuple[str, int]) -> None:
        if at is not None:
            self.pointer = self._pixels(at)
        actions = self._actions()
        actions.pointer_action.move_to_location(*self.pointer)
        for way, button in buttons:
            (actions.pointer_action.pointer_down if way == "down" else actions.pointer_action.pointer_up)(
                button
            )
        actions.perform()

    def _drag(self, start: Point | None, end: Point) -> None:
        self._mouse(start)
        (left, top), (right, bottom) = self.pointer, self._pixels(end)
        actions = self._actions()
        actions.pointer_action.pointer_down(0)
        for step in range(1, DRAG_STEPS + 1):
            part = step / DRAG_STEPS
            actions.pointer_action.move_to_location(
                round(left + (right - left) * part), round(top + (bottom - top) * part)
            )
        actions.pointer_action.pointer_up(0)
        actions.perform()
        self.pointer = right, bottom

    def _actions(self) -> Any:
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        return ActionBuilder(self.driver, duration=0)

    def _pixels(self, at: Point) -> tuple[int, int]:
        return int(at.x * self.size.width), int(at.y * self.size.height)

    def _type(self, text: str) -> None:
        """Types text through the input-method interface, so that any characters work. Line ends and tabs, and
        everything if no text field is active, are pressed as keys."""
        for part in re.findall(r"\n|\t|[^\n\t]+", text):
            if part in "\n\t":
                self._press(("Enter" if part == "\n" else "Tab",))
            elif self._asked(EDITING):
                self._tell("Input.insertText", text=part)
            else:
                for one in part:
                    self._press((one,))

    def _press(self, keys: tuple[str, ...]) -> None:
        actions = self._actions()
        codes = [key_code(key) for key in keys]
        for code in codes:
            actions.key_action.key_down(code)
        for code in reversed(codes):
            actions.key_action.key_up(code)
        actions.perform()

    def _scroll(self, up: float, left: float, at: Point | None) -> None:
        self._mouse(at)
        actions = self._actions()
        actions.wheel_action.scroll(*self.pointer, int(-left), int(-up))
        actions.perform()
        self._asked(PAINTED)

    async def _settled(self) -> None:
        """Waits until the visible tab has loaded the result of an action."""
        ends = asyncio.get_running_loop().time() + WAIT_MS / 1000
        while not await self._done(self._calm) and asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(LOOK_AGAIN)

    def _calm(self) -> bool:
        from selenium.common.exceptions import JavascriptException, UnexpectedAlertPresentException

        try:
            return not self._front() or bool(self._asked(SETTLED))
        except (JavascriptException, UnexpectedAlertPresentException):
            return False  # the page was closed during the call, or shows a dialog

    async def shown(self, unit: Coordinates) -> Shown:
        view = await self._done(self._looked)
        notes, self.notes = self.notes, []
        if view is None:
            return Shown([], [*notes, "(no window is open)"])
        place, tree, snapshot = view
        return shown_page(tree, snapshot, place, unit, notes)

    def _looked(self) -> tuple[Any, Any, Any] | None:
        if not self._front():
            return None
        tree = self._tell("Accessibility.getFullAXTree")
        return self._asked(VIEW), tree, self._tell("DOMSnapshot.captureSnapshot", computedStyles=[])

    async def png(self) -> bytes:
        return bytes(await self._done(self._pictured))

    def _pictured(self) -> bytes:
        self._front()
        return self.driver.get_screenshot_as_png()

    async def tabs(self) -> list[Tab]:
        return list(await self._done(self._listed))

    def _listed(self) -> list[Tab]:
        tabs = []
        if self._front():
            for window in self.windows:
                self.driver.switch_to.window(window)
                tabs.append(Tab(self.driver.title, self.driver.current_url))
        return tabs

    async def active(self) -> Tab:
        tabs = await self.tabs()
        return tabs[-1] if tabs else Tab("", "")

    async def read(self, selector: str, name: str) -> list[Any]:
        return list(await self._done(self._values, selector, name))

    def _values(self, selector: str, name: str) -> list[Any]:
        return list(self._asked(READ, [selector, name])) if self._front() else []

    async def close(self) -> None:
        """Closes the browser and deletes its data."""
        try:
            async with reaching_the_driver(), asyncio.timeout(END_SECONDS):
                await asyncio.to_thread(self.driver.quit)  # not in the screen's own thread, which may hang
        except EnvironmentAway:
            pass
        finally:
            self._thread.shutdown(wait=False)
            if self._after is not None:
                await self._after()


def key_code(name: str) -> str:
    """Returns WebDriver's code of a named key; a character is its own code."""
    from selenium.webdriver import Keys

    if len(name) == 1:
        return name
    return str(getattr(Keys, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()))
