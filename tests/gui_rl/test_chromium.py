"""The browser driven by Playwright runs only the pages of episodes."""

from __future__ import annotations

import psutil
import pytest

from gui_rl.screens.chromium import OFF, Chromium
from gui_rl.screens.protocol import ScreenSize
from gui_rl.screens.sites import Visit
from tests.gui_rl.conftest import needs

SWITCH = "--disable-features="


def disabled() -> list[set[str]]:
    """Returns the features disabled by each such flag of this process's browser."""
    lines = [child.cmdline() for child in psutil.Process().children(recursive=True)]
    [browser] = [line for line in lines if f"{SWITCH}{','.join(OFF)}" in line and "--type=" not in str(line)]
    return [set(word.removeprefix(SWITCH).split(",")) for word in browser if word.startswith(SWITCH)]


@pytest.mark.timeout(600)
async def test_a_context_opens_no_browser_page_and_keeps_the_features_disabled_by_playwright_off() -> None:
    needs("playwright")
    chromium = Chromium(ScreenSize())
    try:
        screen = await chromium.screen(Visit())
        await screen.open([])
        assert chromium._browser is not None
        session = await chromium._browser.new_browser_cdp_session()
        found = await session.send("Target.getTargets", {"filter": [{}]})
        assert {one["type"] for one in found["targetInfos"]} <= {"page", "tab", "browser"}
        *others, ours = disabled()
        assert others and set.union(*others) <= ours == set(OFF)
    finally:
        await chromium.close()
