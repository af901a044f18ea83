"""The page in a real browser, over a recorded run of the tiny model: every view, by mouse and only by keyboard.

Every test also fails on a console error, a dialog, or a request to another host.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fakes.running_gateway import RunningGateway
from tests.openclaw.page.recorded_run import recorded_run
from tests.openclaw.page.scripted_gate import scripted_gate

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PHONE = {"width": 390, "height": 800}
DESK = {"width": 1200, "height": 800}
VIEWS = ("/", "/page/sessions", "/page/learning", "/page/versions", "/page/privacy")
WAIT_MS = 30_000
UNNAMED = """() => [...document.querySelectorAll("input:not([type=hidden]), textarea, select, button, summary, a")]
  .filter((one) => !(one.textContent.trim() || one.labels?.length || one.getAttribute("aria-label")))
  .map((one) => one.outerHTML)"""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium: run_tests.sh installs Debian's, as root"
)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with recorded_run(tmp_path_factory.mktemp("run")) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture
def open_page(browser: Any, served: RunningGateway) -> Iterator[Open]:
    """f(path, **context): opens a page in a new context."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def request(asked: Any) -> None:
        if urlsplit(asked.url).netloc != urlsplit(served.url).netloc:
            wrong.append(f"request to {asked.url}")

    def start(path: str, **options: object) -> Any:
        context = browser.new_context(base_url=served.url, **{"viewport": DESK, **options})
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", request)
        page.goto(path)
        return page

    yield start
    for context in contexts:
        context.close()
    assert wrong == []


def trained_turn(served: RunningGateway) -> Any:
    """Returns a turn of the recorded run with advantages, a hint and a teacher."""
    with served.store.database.reading() as connection:
        ids = connection.exec_driver_sql(
            "SELECT sample.turn_id FROM token_record JOIN sample ON sample.id = token_record.sample_id ORDER BY sample.id"
        )
        turns = [row[0] for row in ids]
    hinted = [id_ for id_ in turns if "hint" in (served.store.token_records.of_turn(id_) or {})]
    return served.store.turns.get(hinted[-1])


def sound(page: Any) -> None:
    """Checks rules for every page: one heading, names on all interactive elements, and no horizontal overflow."""
    assert page.locator("h1").count() == 1 and page.locator("main").count() == 1
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 1


@pytest.mark.parametrize(("viewport", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def test_every_view_works_on_desktop_and_phone_screens(
    open_page: Open, served: RunningGateway, viewport: Any, scheme: str
) -> None:
    page = open_page("/", viewport=viewport, color_scheme=scheme)
    turn = trained_turn(served)
    newest = served.store.versions.all()[-1].version
    views = (*VIEWS, f"/page/session?id={turn.session_id}", f"/page/turn?id={turn.completion_id}")
    for path in (*views, f"/page/version?n={newest}"):
        if path != "/":
            page.goto(path)
        sound(page)
    page.goto("/page/learning")
    page.wait_for_selector("[data-chart='0'] canvas")
    assert page.locator("[data-chart] canvas").count() == page.locator("figure").count() >= 5


def test_tokens_are_coloured_by_each_of_their_values(open_page: Open, served: RunningGateway) -> None:
    turn = trained_turn(served)
    page = open_page(f"/page/turn?id={turn.completion_id}&by=version")
    clear = "rgba(0, 0, 0, 0)"
    colour = "one => getComputedStyle(one).backgroundColor"
    assert page.locator("#tokens .v0").first.evaluate(colour) != clear
    for by in ("surprise", "gap", "teacher", "advantage"):
        page.click(f".ways a:has-text('{by}')")
        page.wait_for_url(re.compile(f"by={by}"))
        drawn = page.locator("#tokens .tok").all_text_contents()
        assert len(drawn) == len(turn.completion_ids)
        assert "".join(drawn).startswith(str(turn.response_message["content"])[:20])


def test_a_turn_is_opened_and_rated_with_the_keyboard_only(open_page: Open, served: RunningGateway) -> None:
    page = open_page("/page/sessions")
    keys = page.keyboard
    keys.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    keys.press("Enter")
    for start, address in ((".card a", "/page/session"), (".facts > a", "/page/turn")):
        tab_to(page, start)
        keys.press("Enter")
        page.wait_for_url(re.compile(address.replace("?", r"\?") + r"\?"))
    tab_to(page, "#tokens")
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    assert re.search(r"2 of \d+, id \d+, log-prob", page.inner_text("#token-about"))
    keys.press("End")
    assert page.locator("#tokens .tok.chosen").count() == 1
    tab_to(page, "summary:has-text('Overrule')")
    keys.press("Enter")
    tab_to(page, "[name=verdict]")
    keys.press("Space")
    keys.press("ArrowRight")
    tab_to(page, "#hint")
    keys.type("say <b>why</b>")
    tab_to(page, "button:has-text('Overrule')")
    keys.press("Enter")
    page.wait_for_url(re.compile("said="))
    completion = re.search(r"id=([^&#]+)", page.url)
    assert completion is not None and "say <b>why</b>" in page.inner_text("#judged")
    found = served.store.feedback.judgements_of(served.turn(completion[1]).id)
    assert [(one.kind, one.score) for one in found] == [("eval", -1.0), ("hint", 1.0)]


def tab_to(page: Any, selector: str, most: int = 80) -> None:
    """Presses Tab until the first matching element has the focus."""
    wanted = page.locator(selector).first
    for _ in range(most):
        if wanted.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} cannot be reached with Tab")


def test_the_start_page_updates_itself_and_a_click_repeats_a_prompt(
    open_page: Open, served: RunningGateway, tmp_path: Path
) -> None:
    page = open_page("/")
    served.says("It is 4.")
    body = {
        "messages": [{"role": "user", "content": "what <i>is</i> 2+2?"}],
        "session_id": "now",
        "user": "eve",
    }
    completion = served.http.post("/v1/chat/completions", json=body).json()["id"]
    page.wait_for_selector("a:has-text('what <i>is</i> 2+2?')")
    served.engine._prompts.clear()
    served.says("Four.")
    page.goto(f"/page/turn?id={completion}")
    page.click("button:has-text('Ask the live version')")
    page.wait_for_selector("#again .pair")
    assert "It is 4." in page.inner_text("#again") and "Four." in page.inner_text("#again")
    (folder := tmp_path / "v9000").mkdir()
    served.store.versions.weights_live(-1, 9000, None, True, str(folder), "c9000")
    served.engine.tries[9000] = served.says("Two and two make four.")
    page.reload()
    page.select_option("#again-version", "9000")
    page.click("button:has-text('Ask this version')")
    page.wait_for_selector("#again :text('Two and two make four.')")


def bring_back(page: Any, version: int) -> None:
    page.click(f"button:has-text('Restore version {version}')")
    page.wait_for_selector(f"text=Version {version} is live again.")


def test_a_version_is_rolled_back_pinned_and_compared_by_click(
    open_page: Open, served: RunningGateway
) -> None:
    routes = list(served.app.router.routes)
    asked = scripted_gate(served.app)
    try:
        page = open_page("/page/versions")
        assert "KL <b>9.1</b> above 1" in page.inner_text("#v3")
        assert page.locator("#v3 form, #v2 form").count() == 0
        page.click("#v1 button:has-text('Go back to version 1')")
        page.wait_for_selector("text=Version 1 is live again.")
        assert asked == [{"version": 1, "drop_turns": True}], "one click; its turns are not learned again"
        bring_back(page, 2)
        page.click("#v1 button:has-text('train again')")
        page.wait_for_selector("text=Version 1 is live again.")
        bring_back(page, 2)
        assert [one["version"] for one in asked] == [1, 2, 1, 2]
        assert asked[2] == {"version": 1, "drop_turns": False}
        page.click("#v1 button:has-text('Pin version 1')")
        page.wait_for_selector("text=Version 1 is pinned.")
        assert asked[4:] == [{"pin": 1}]
        page.click("#v1 a:has-text('Compare with version 2')")
        page.fill("#prompts", "what is <b>2+2</b>?")
        page.click("button:has-text('Answer side by side')")
        page.wait_for_selector("h2:has-text('Answers side by side')")
        sound(page)
        assert "1 says <what is <b>2+2</b>?>" in page.inner_text(".pair")
    finally:
        served.app.router.routes[:] = routes


def test_a_session_and_a_person_are_deleted_by_click(open_page: Open, served: RunningGateway) -> None:
    served.says("hello")
    for session, user in (("one", "ada"), ("two", "bob")):
        body = {"messages": [{"role": "user", "content": "hi"}], "session_id": session, "user": user}
        assert served.http.post("/v1/chat/completions", json=body).status_code == 200
    page = open_page("/page/session?id=one")
    page.click("summary:has-text('Delete this session')")
    page.check("[name=sure]")
    page.click("button:has-text('Delete')")
    page.wait_for_selector("text=Deleted: 1 turns.")
    bob = page.locator("li.card", has_text="bob")
    bob.locator("summary").click()
    bob.locator("[name=sure]").check()
    bob.locator("button").click()
    page.wait_for_selector("text=deleted from the store: 1 sessions, 1 turns")
    assert page.locator("li.card", has_text="bob").count() == 0
    assert served.store.sessions.get("one") is None and served.store.sessions.get("two") is None
