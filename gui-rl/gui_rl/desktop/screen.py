"""The screen of one episode with its own desktop."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from gui_rl.desktop.devtools import DevTools, NoAnswer, Target
from gui_rl.desktop.display import Display
from gui_rl.desktop.inputs import words_of, written
from gui_rl.desktop.programs import Programs
from gui_rl.screens.accessibility import shown_page
from gui_rl.screens.actions import Coordinates, Drag, GuiAction, Point, Type
from gui_rl.screens.page_scripts import READ, VIEW
from gui_rl.screens.protocol import ScreenSize, Shown, Tab
from gui_rl.screens.tree import Element
from slime.errors import EnvironmentAway, SandboxError
from slime.sandbox import Finished

ORIGIN = """() => { const side = (outerWidth - innerWidth) / 2;
  return [screenX + side, screenY + outerHeight - innerHeight - side]; }"""
LOADED = "() => document.readyState === 'complete'"
FRAMES = """() => Promise.race([new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))),
  new Promise(done => setTimeout(done, 250))])"""
CLASSES = "chrom"  # prefix of the window class of Chromium and Chrome
LOAD_SECONDS = 20.0
WINDOW_SECONDS = 20.0
CLOSING_SECONDS = 10.0  # seconds from closing a browser's last window to its exit
Found = TypeVar("Found")
LOOK_AGAIN = 0.05
TITLE = 12  # pixels from the upper edge of a window to its title
WINDOW = re.compile(r"(.*)\nWINDOW=(\d+)\nX=(-?\d+)\nY=(-?\d+)\nWIDTH=(\d+)\nHEIGHT=(\d+)\nSCREEN=\d+\n")


class DesktopScreen:
    """Implements OpenScreen, and Desktop by the methods below `close`."""

    def __init__(
        self, display: Display, programs: Programs, size: ScreenSize, after: Callable[[], Awaitable[None]]
    ) -> None:
        self.display, self.programs, self.size = display, programs, size
        self.devtools: DevTools | None = None
        self.pointer = Point(0.5, 0.5)  # initial position in Xvfb
        self._after = after

    @property
    def desktop(self) -> DesktopScreen:
        return self

    async def open(self, urls: list[str]) -> None:
        for url in urls or ["about:blank"]:
            browser = self._browser()
            if browser is None:
                await asyncio.to_thread(self.programs.start_browser, url)
                self.devtools = browser = DevTools(self.programs.devtools)
                await browser.ready()
            else:
                await browser.open(url)
            await self._settled()

    def _browser(self) -> DevTools | None:
        """Returns the browser; None if there is none, or if it was closed."""
        self.programs.check()
        return self.devtools if self.programs.browsing_now else None

    async def act(self, action: GuiAction) -> None:
        if isinstance(action, Drag) and action.start is None:
            action = replace(action, start=self.pointer)
        for part in written(action):
            if isinstance(part, Type):
                await self.display.prepare(part.text)
            if words := words_of(part, self.size):
                await self.display.hand(*words)
        at = action.end if isinstance(action, Drag) else getattr(action, "at", None)
        self.pointer = at if isinstance(at, Point) else self.pointer
        await self._settled()

    async def _settled(self) -> None:
        """Returns once the picture is stable and the visible tab has loaded."""
        await self._reached()
        await self.display.calm()
        ends = asyncio.get_running_loop().time() + LOAD_SECONDS
        while (tab := await self._front()) and asyncio.get_running_loop().time() < ends:
            browser, target = tab
            try:
                if await browser.ask(target, LOADED, seconds=2.0):
                    return
            except NoAnswer:
                return
            await asyncio.sleep(LOOK_AGAIN)

    async def _reached(self) -> None:
        """Returns once the browser has handled the last input: it has listed its tabs, which it does between two
        events, and its page has drawn two frames."""
        if tab := await self._front():
            browser, target = tab
            with contextlib.suppress(NoAnswer):
                await self._unless_closed(browser.ask(target, FRAMES, seconds=2.0))

    async def _front(self) -> tuple[DevTools, Target] | None:
        browser = self._browser()
        target = await self._unless_closed(browser.front()) if browser else None
        return (browser, target) if browser and target else None

    async def _unless_closed(self, call: Awaitable[Found]) -> Found | None:
        """Returns the browser's answer; None if the browser is closing."""
        try:
            return await call
        except EnvironmentAway:
            ends = asyncio.get_running_loop().time() + CLOSING_SECONDS
            while asyncio.get_running_loop().time() < ends:
                if self._browser() is None:
                    return None
                await asyncio.sleep(LOOK_AGAIN)
            raise

    async def shown(self, unit: Coordinates) -> Shown:
        """Returns the windows, and the page's elements if the browser's window is active."""
        windows = await self.windows(unit)
        tab = await self._front() if await self._browser_is_active() else None
        if tab is None:
            return Shown(windows, [] if windows else ["(no window is open)"])
        browser, target = tab
        try:
            tree = await browser.send_command(target, "Accessibility.getFullAXTree")
            snapshot = await browser.send_command(target, "DOMSnapshot.captureSnapshot", computedStyles=[])
            place, origin = await browser.ask(target, VIEW), await browser.ask(target, ORIGIN)
        except NoAnswer:
            return Shown(windows, ["(the page shows a window of its own)"])
        page = shown_page(tree, snapshot, place, unit, (), tuple(origin))
        return Shown([*windows, *page.elements], page.notes)

    async def _browser_is_active(self) -> bool:
        active = (await self.display.hand("getactivewindow")).strip()
        return active in (await self.display.hand("search", "--onlyvisible", "--class", CLASSES)).split()

    async def windows(self, unit: Coordinates) -> list[Element]:
        """Returns the windows, each at the position of its title."""
        active = (await self.display.hand("getactivewindow")).strip()
        windows = []
        for name, number, x, y, width, _ in await self._geometry():
            at = unit.written(
                min(max(x + width / 2, 0), self.size.width - 1), min(max(y + TITLE, 0), self.size.height - 1)
            )
            states = ("active",) if str(number) == active else ()
            windows.append(Element("window", name, *at, None, states))
        return windows

    async def _geometry(self) -> list[tuple[str, int, int, int, int, int]]:
        numbers = (await self.display.hand("search", "--onlyvisible", "--name", ".")).split()
        words = [
            word for one in numbers for word in ("getwindowname", one, "getwindowgeometry", "--shell", one)
        ]
        output = await self.display.hand(*words) if words else ""
        geometries = [(name, *map(int, rest)) for name, *rest in WINDOW.findall(output)]
        return [one for one in geometries if one[4] > 1 and one[5] > 1]  # type: ignore[misc]

    async def png(self) -> bytes:
        return await asyncio.to_thread(self.display.png)

    async def tabs(self) -> list[Tab]:
        browser = self._browser()
        tabs = await self._unless_closed(browser.tabs()) if browser else None
        return [Tab(one.title, one.url) for one in tabs or []]

    async def active(self) -> Tab:
        tab = await self._front()
        return Tab(tab[1].title, tab[1].url) if tab else Tab("", "")

    async def read(self, selector: str, name: str) -> list[Any]:
        tab = await self._front()
        try:
            return list(await tab[0].ask(tab[1], READ, [selector, name]) or []) if tab else []
        except NoAnswer:
            return []

    async def close(self) -> None:
        """Ends all programs and the display; deletes their files."""
        try:
            if self.devtools is not None:
                await self.devtools.close()
            await asyncio.to_thread(self.programs.close)
        finally:
            await self.display.close()
            await self._after()

    async def launch(self, words: Sequence[str]) -> None:
        before = len(await self._geometry())
        await asyncio.to_thread(self.programs.start, words)
        ends = asyncio.get_running_loop().time() + WINDOW_SECONDS
        while len(await self._geometry()) <= before and asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(LOOK_AGAIN)
        await self.display.calm()

    async def run(self, command: str | Sequence[str], shell: bool) -> Finished:
        return await asyncio.to_thread(self.programs.run, command, shell)

    async def file(self, path: str) -> bytes | None:
        inside = path.replace("~", self.programs.home.place, 1) if path.startswith("~") else path
        inside = inside.removeprefix(self.programs.home.place).lstrip("/")
        try:
            return await asyncio.to_thread(self.programs.home.read, inside)
        except (OSError, ValueError, SandboxError):
            return None

    async def window(self, name: str, strict: bool, what: Literal["windowactivate", "windowclose"]) -> bool:
        for called, number, *_ in await self._geometry():
            if called == name if strict else name.lower() in called.lower():
                words = (what, "--sync", str(number)) if what == "windowactivate" else (what, str(number))
                await self.display.hand(*words)
                await self.display.calm()
                return True
        return False
