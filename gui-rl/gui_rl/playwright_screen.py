"""The screen of one episode: a browser context with its tabs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gui_rl.accessibility import shown_page
from gui_rl.actions import Click, Coordinates, Drag, GuiAction, Move, Point, Press, Scroll, Type
from gui_rl.chromium import END_SECONDS, WAIT_MS, reaching_the_browser
from gui_rl.page_scripts import EDITING, NOTICE_LEAVING, PAINTED, READ, SETTLED, VIEW
from gui_rl.screens import Shown, Tab

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Dialog, Page

DRAG_STEPS = 6
LOOK_AGAIN = 0.01  # seconds


class PlaywrightScreen:
    """Made by `begin`."""

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
        """The tab in front: the newest that is open."""
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
        """As an input method does it, so that any writing goes; line ends and tabs are keys, and so is all of it where
        nothing can be written."""
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
        """Returns when the tab in front has loaded what an action led to."""
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
        found = await self.tabs()
        return found[-1] if found else Tab("", "")

    async def read(self, selector: str, name: str) -> list[Any]:
        async with reaching_the_browser():
            return list(await self.page.evaluate(READ, [selector, name])) if self.pages else []

    async def close(self) -> None:
        """Ends the context; what it kept goes with it. Of a browser that is gone nothing is left to end."""
        from playwright.async_api import Error

        try:
            await asyncio.wait_for(self.context.close(), END_SECONDS)
        except (Error, TimeoutError):
            return
