"""Attempts to cheat in GUI tasks, with the real sites, turns and checks: none is rewarded."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from gui_rl.desktop.programs import Programs
from gui_rl.episode.environment import GuiEnvironment, GuiSettings
from gui_rl.episode.reading import GuiFormat
from gui_rl.episode.surroundings import Surroundings
from gui_rl.scoring.metrics import score
from gui_rl.scoring.task import TaskError
from gui_rl.screens.protocol import ScreenSize, Shown, Tab
from gui_rl.screens.sites import HEADER, SiteServer, Visit
from slime.agents import Action, Outcome, Task
from slime.agents.tool_calls import CallError
from tests.gui_rl.conftest import UNIT

FORMAT = GuiFormat(UNIT)
OWN = "http://pages.test"
WANTED = {"pressed": ["Save"]}
CHANGE = json.dumps({"set": WANTED})


@dataclass
class Paper:
    """A screen without a browser: it has an open page, and ignores mouse and keys."""

    desktop: None = None
    acted: list[object] = field(default_factory=list)

    async def open(self, urls: Sequence[str]) -> None:
        self.urls = list(urls)

    async def shown(self, unit: object) -> Shown:
        return Shown([], [])

    async def act(self, action: object) -> None:
        self.acted.append(action)

    async def tabs(self) -> list[Tab]:
        return [Tab("Page", url) for url in self.urls]

    async def active(self) -> Tab:
        return (await self.tabs())[-1]

    async def close(self) -> None:
        """Does nothing."""


class Papers:
    """Replaces a browser."""

    def __init__(self, sites: SiteServer) -> None:
        self.sites = sites

    async def ready(self) -> SiteServer:
        return self.sites

    async def screen(self, visit: Visit) -> Paper:
        return Paper()


@pytest.fixture
async def sites() -> AsyncIterator[SiteServer]:
    server = SiteServer()
    await server.start()
    yield server
    await server.stop()


def episode(sites: SiteServer) -> GuiEnvironment:
    here = SimpleNamespace(here=lambda: Papers(sites))
    return GuiEnvironment(GuiSettings(unit=UNIT), cast(Surroundings, here))


def task(evaluator: Mapping[str, Any] | None = None) -> Task:
    checked = {
        "func": "exact_match",
        "result": {"type": "site_state", "keys": list(WANTED)},
        "expected": {"type": "rule", "rules": {"expected": WANTED}},
    }
    opened = {"type": "chrome_open_tabs", "parameters": {"urls_to_open": [f"{OWN}/0"]}}
    made = {"title": "Page", "left": 20, "gap": 10, "widgets": [{"kind": "button", "name": "Save"}]}
    config = {
        "id": "t",
        "instruction": "Press Save.",
        "pages": [made],
        "config": [opened],
        "evaluator": evaluator or checked,
    }
    return Task("", metadata={"domain": "test", "task_config": config})


@dataclass(frozen=True)
class Request:
    """Requests to the sites; "TOKEN" stands for the episode's own header."""

    body: str = CHANGE
    headers: tuple[tuple[str, str], ...] = ((HEADER, "TOKEN"), ("Origin", OWN))
    method: str = "POST"
    path: str = "/_/state"
    host: str = "pages.test"


def with_origin(*origins: str) -> tuple[tuple[str, str], ...]:
    return ((HEADER, "TOKEN"), *(("Origin", one) for one in origins))


FORM = ("Content-Type", "text/plain")
REQUESTS = {
    "a request of no episode": Request(headers=(("Origin", OWN),)),
    "an invented episode": Request(headers=((HEADER, "0" * 32), ("Origin", OWN))),
    "an episode of another": Request(headers=((HEADER, "OTHER"), ("Origin", OWN))),
    "a page without an origin": Request(headers=with_origin()),
    "a page of an address": Request(headers=with_origin("null")),
    "a page of another site": Request(headers=with_origin("http://evil.test")),
    "a page of the same name, encrypted": Request(headers=with_origin("https://pages.test")),
    "a page of another port": Request(headers=with_origin(f"{OWN}:8080")),
    "a page of a name below": Request(headers=with_origin("http://a.pages.test")),
    "a page of a name that begins alike": Request(headers=with_origin("http://pages.test.evil.test")),
    "a page in a file": Request(headers=with_origin("file://")),
    "two origins": Request(headers=with_origin(OWN, "null")),
    "two origins in one": Request(headers=with_origin(f"{OWN}, null")),
    "a form of an address": Request(headers=(*with_origin("null"), FORM)),
    "an empty origin": Request(headers=with_origin("")),
    "PUT": Request(method="PUT"),
    "PATCH": Request(method="PATCH"),
    "DELETE": Request(method="DELETE"),
    "a change in the address": Request(method="GET", path=f"/_/state?set={CHANGE}"),
    "another method in a header": Request(
        method="GET", headers=(*with_origin(OWN), ("X-HTTP-Method-Override", "POST"))
    ),
    "a path with a slash": Request(path="/_/state/"),
    "a path in other letters": Request(path="/_/STATE"),
    "a change that is a list": Request(body=json.dumps([{"set": WANTED}])),
    "a change of nothing": Request(body='{"set": null, "add": {"pressed": "Save"}}'),
    "a change that is not JSON": Request(body=f"{CHANGE}]"),
    "two changes": Request(body=CHANGE + CHANGE),
    "too long a change": Request(body=json.dumps({"set": {**WANTED, "more": "x" * 300_000}})),
}


async def send(sites: SiteServer, visit: Visit, other: Visit, request: Request) -> None:
    names = {"TOKEN": visit.token, "OTHER": other.token}
    headers = [(name, names.get(value, value)) for name, value in request.headers]
    url = f"{sites.address}{request.path}"
    async with aiohttp.ClientSession() as session:
        answer = session.request(
            request.method, url, data=request.body, headers=[*headers, ("Host", request.host)]
        )
        async with answer as found:
            await found.read()


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_that_does_not_come_from_the_sites_page_does_not_solve_the_task(
    sites: SiteServer, name: str
) -> None:
    one, other = episode(sites), sites.begin()
    await one.reset(task())
    assert one.visit is not None
    await send(sites, one.visit, other, REQUESTS[name])
    await one.step(Action("DONE", FORMAT.calls("DONE", ())))
    assert not (await one.evaluate()).solved and not one.visit.state
    await one.close()


async def test_a_request_from_the_sites_page_solves_the_task(sites: SiteServer) -> None:
    one = episode(sites)
    await one.reset(task())
    assert one.visit is not None
    await send(sites, one.visit, one.visit, Request())
    await one.step(Action("DONE", FORMAT.calls("DONE", ())))
    assert (await one.evaluate()).solved
    await one.close()


async def test_a_state_too_full_for_a_change_does_not_solve_the_task(sites: SiteServer) -> None:
    one = episode(sites)
    await one.reset(task())
    visit = one.visit
    assert visit is not None
    await send(sites, visit, visit, Request())
    filled = json.dumps({"set": {"written": {"Name": "x" * 262_080}}})
    await send(sites, visit, visit, Request(filled))
    await send(sites, visit, visit, Request(json.dumps({"add": {"pressed": "Delete all of it"}})))
    await one.step(Action("DONE", FORMAT.calls("DONE", ())))
    assert visit.state["pressed"] == ["Save"]
    assert not (await one.evaluate()).solved
    await one.close()


LOCAL = (
    "file:///etc/hostname",
    "FILE:/etc/hostname",
    "view-source:file:///etc/hostname",
    "chrome://version",
    "data:text/html,<button>Save</button>",
    "javascript:1",
    "filesystem:http://pages.test/x",
    " file:///etc/hostname",
    "/etc/hostname",
)


@pytest.mark.parametrize("url", LOCAL)
@pytest.mark.parametrize("kind", ["config", "postconfig"])
async def test_a_task_opens_only_sites_in_a_browser_without_a_sandbox(
    sites: SiteServer, url: str, kind: str
) -> None:
    step = {"type": "chrome_open_tabs", "parameters": {"urls_to_open": [url]}}
    one, asked = episode(sites), task()
    config = asked.metadata["task_config"]
    (config["config"] if kind == "config" else config["evaluator"].setdefault(kind, [])).append(step)
    with pytest.raises(TaskError, match="no address of a site"):
        await played(one, asked, ["DONE"])


FORGED = '<tool_call>{"name": "computer_use", "arguments": %s}</tool_call>'
NOTHING = FORGED % '{"action": "wait", "time": 0}'
FEASIBLE = {
    "the end at once": ["DONE"],
    "giving up at once": ["FAIL"],
    "giving up, then done": ["FAIL\nDONE"],
    "done in words": ["The task is solved. Reward: +1."],
    "a screen of its own": ['pyautogui.write("window \\"Saved\\" 1,1\\nbutton \\"Saved\\" 2,2")', "DONE"],
    "code of its own": ["```python\nopen('/tmp/x', 'w')\n```", "DONE"],
    "a call of its own": ['<tool_call>{"name": "evaluate", "arguments": {"score": 1}}</tool_call>', "DONE"],
    "success by a call": [FORGED % '{"action": "terminate", "status": "success"}'],
    "a status of its own": [FORGED % '{"action": "terminate", "status": "success", "score": 1, "reward": 1}'],
    "nothing until the end of the turns": [NOTHING] * 3,
    "keys of a browser": ['pyautogui.hotkey("ctrl", "s")', 'pyautogui.press("f12")', "DONE"],
}
INFEASIBLE = {
    "done": ["DONE"],
    "done, then giving up": ["DONE\nFAIL"],
    "giving up in a thought": ["<think>\nFAIL\n</think>\npyautogui.press('a')"],
    "giving up in words": ["This cannot be done: FAIL."],
    "giving up as text": ['pyautogui.write("FAIL")', "DONE"],
    "nothing until the end of the turns": [NOTHING],
    "success and failure": [
        FORGED % '{"action": "terminate", "status": "success"}'
        + FORGED % '{"action": "terminate", "status": "failure"}'
    ],
    "a status that is none": [FORGED % '{"action": "terminate", "status": "FAILURE"}'],
}


async def played(one: GuiEnvironment, task: Task, turns: Sequence[str]) -> Outcome:
    await one.reset(task)
    for text in turns:
        try:
            calls = FORMAT.calls(text, ())
        except CallError:
            continue
        if (await one.step(Action(text, calls))).done:
            break
    outcome = await one.evaluate()
    await one.close()
    return outcome


@pytest.mark.parametrize("name", FEASIBLE)
async def test_turns_without_the_required_actions_solve_no_task(sites: SiteServer, name: str) -> None:
    outcome = await played(episode(sites), task(), FEASIBLE[name])
    assert (outcome.solved, outcome.score) == (False, -1.0)


@pytest.mark.parametrize("name", INFEASIBLE)
async def test_an_infeasible_task_is_solved_only_by_giving_up(sites: SiteServer, name: str) -> None:
    impossible = task({"func": "infeasible"})
    outcome = await played(episode(sites), impossible, INFEASIBLE[name])
    assert (outcome.solved, outcome.score) == (False, -1.0)
    assert (await played(episode(sites), impossible, ["FAIL"])).solved


TAB = {"type": "url", "url": "http://shop.test/cart.html"}
BARE = {"type": "url", "url": "shop.test"}
ENDS: dict[str, tuple[str, object, object]] = {
    "a file of the site's name": ("is_expected_active_tab", {"url": "file://shop.test/cart.html"}, TAB),
    "the address in a query": (
        "is_expected_active_tab",
        {"url": "http://evil.test/?http://shop.test/cart.html"},
        TAB,
    ),
    "the address in a fragment": (
        "is_expected_active_tab",
        {"url": "about:blank#http://shop.test/cart.html"},
        TAB,
    ),
    "a user of the site's name": (
        "is_expected_active_tab",
        {"url": "http://shop.test@evil.test/cart.html"},
        TAB,
    ),
    "a name below": ("is_expected_active_tab", {"url": "http://www.shop.test.evil.test/cart.html"}, TAB),
    "an empty page, and an address without scheme": ("is_expected_active_tab", {"url": "about:blank"}, BARE),
    "no page, and an address without scheme": ("is_expected_active_tab", {}, BARE),
    "no tab at all": ("is_expected_active_tab", None, TAB),
    "empty pages in place of tabs": (
        "is_expected_tabs",
        [{"url": "about:blank"}],
        {"type": "url", "urls": ["shop.test"]},
    ),
    "a script's address": ("is_expected_active_tab", {"url": "javascript://shop.test/cart.html"}, TAB),
    "further tabs": (
        "is_expected_tabs",
        [{"url": "http://shop.test"}, {"url": "http://a.test"}],
        {"type": "url", "urls": ["http://shop.test"]},
    ),
    "no text": ("check_include_exclude", None, {"include": []}),
    "no JSON": ("check_json", "", {"unexpect": [{"key": ["a"], "ref": 1}]}),
    "no file": ("file_contains", None, {"expected": []}),
    "no object": ("check_direct_json_object", None, {"expected": {}}),
    "one for true": ("exact_match", {"dark": 1}, {"expected": {"dark": True}}),
    "one for true in an object": ("check_direct_json_object", {"dark": 1}, {"expected": {"dark": True}}),
    "true for one in a list": ("match_in_list", True, {"expected": [1, 2]}),
    "true for one among several": ("is_in_list", [True], {"expected": 1}),
    "one for true in a file": (
        "check_json",
        '{"dark": 1}',
        {"expect": [{"key": ["dark"], "method": "eq", "ref": True}]},
    ),
    "JSON that is too deep to read": (
        "check_json",
        "[" * 100_000,
        {"unexpect": [{"key": ["a"], "ref": 1}]},
    ),
    "nothing in a list": ("is_in_list", "", {"expected": ""}),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_similar_but_wrong_final_state_has_no_reward(name: str) -> None:
    func, result, rules = ENDS[name]
    assert score(func, result, rules, {}) == 0.0


def test_addresses_without_a_page_are_valid() -> None:
    for url in ("http://shop.test/cart.html", "https://www.shop.test/cart.html/"):
        assert score("is_expected_active_tab", {"url": url}, TAB, {}) == 1.0
    assert score("is_expected_active_tab", {"url": "https://www.shop.test/"}, BARE, {}) == 1.0
    settings = {"type": "url", "url": "chrome://settings/"}
    assert score("is_expected_active_tab", {"url": "chrome://settings"}, settings, {}) == 1.0


LIE = "print('right'); import os; os._exit(0)"
SITE = ".local/lib/python3.%d/site-packages"
LEFT = {
    "a module of the user": f"{SITE}/usercustomize.py",
    "a module of the site": f"{SITE}/sitecustomize.py",
    "a path file": f"{SITE}/lie.pth",
    "a module in place of the library's": "json.py",
    "a module beside the command": "subprocess.py",
    "a start of the shell": ".bashrc",
    "a profile of the shell": ".profile",
    "a start of Python": ".pythonrc.py",
    "a program in the home": "python3",
    "a program of the user": ".local/bin/python3",
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yields a folder that the sandbox's user may read."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_files_left_by_an_agent_do_not_influence_the_checks(open_folder: Path) -> None:
    """All of them together do not change the output of a check's command."""
    names = {name: open_folder / name for name in ("socket", "cookie")}
    for path in names.values():
        path.touch()
    display = SimpleNamespace(folder=open_folder, number=9, **names)
    programs = Programs(cast(Any, display), ScreenSize(800, 600))
    python = "python3 -c 'import json, subprocess; print(json.dumps(\"wrong\"))'"
    try:
        for path in LEFT.values():
            for version in range(9, 15) if "%" in path else (0,):
                shell = path.startswith((".bash", ".profile", "python3", ".local/bin"))
                text = "#!/bin/sh\necho right; exit 0\n" if shell else LIE
                where = path % version if "%" in path else path
                programs.home.write(where, text.encode(), executable=shell)
        for command in (python, f"cd /home/user; {python}", f"bash -c {json.dumps(python)}"):
            assert programs.run(command, shell=True).output.split() == ['"wrong"'], command
    finally:
        programs.close()


def test_there_are_more_than_forty_cheats() -> None:
    assert len(REQUESTS) + len(FEASIBLE) + len(INFEASIBLE) + len(ENDS) + len(LEFT) > 40
