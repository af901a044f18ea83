"""Creates the screenshots of the README from the recorded run: `python -m tests.openclaw.page.screenshots
instructions/images`. Screenshots of versions come from a running loop that has learned: add its address,
http://127.0.0.1:30000."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.openclaw.page.recorded_run import recorded_run
from tests.openclaw.page.test_browser import CHROMIUM, trained_turn

DESK = {"width": 1000, "height": 640}
QUALITY = 72


def take(browser: Any, base: str, path: str, file: Path, **options: object) -> None:
    """Saves a screenshot of the top of a page, or of the element `#...` in its address."""
    context = browser.new_context(base_url=base, **{"viewport": DESK, **options})
    page = context.new_page()
    page.goto(path)
    page.wait_for_timeout(500)
    page.screenshot(path=str(file), type="jpeg", quality=QUALITY)
    context.close()


def take_versions(base: str, folder: Path) -> None:
    """Saves the list of versions with the live one pinned for a moment, and its answers next to the first model's."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(base_url=base, viewport=DESK).new_page()
        page.goto("/page/versions")
        page.click("button:has-text('Pin version') >> nth=0")
        page.wait_for_selector("button:has-text('Unpin')")
        page.goto("/page/versions")
        page.screenshot(path=str(folder / "page-versions.jpg"), type="jpeg", quality=QUALITY)
        page.click("button:has-text('Unpin')")
        page.wait_for_selector("text=Training continues.")
        page.click("a:has-text('Compare with the initial model')")
        page.click("button:has-text('Answer side by side')")
        page.locator("h2:has-text('Answers side by side')").scroll_into_view_if_needed()
        page.evaluate("document.getElementById('answers-title').scrollIntoView()")
        page.screenshot(path=str(folder / "page-diff.jpg"), type="jpeg", quality=QUALITY)
        browser.close()


def main(folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as name,
        recorded_run(Path(name)) as served,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        turn = trained_turn(served)
        session = f"/page/session?id={turn.session_id}"
        token = f"/page/turn?id={turn.completion_id}&by=teacher#answer-title"
        take(browser, served.url, session, folder / "page-session.jpg")
        take(browser, served.url, token, folder / "page-turn.jpg", color_scheme="dark")
        take(browser, served.url, "/page/learning", folder / "page-learning.jpg")
        phone = {"viewport": {"width": 390, "height": 640}}
        take(browser, served.url, "/", folder / "page-phone.jpg", **phone)
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        take_versions(sys.argv[2], Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]))
