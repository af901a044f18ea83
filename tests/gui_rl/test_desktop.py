"""Episodes with their own desktop: programs next to the browser, and their isolation."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from collections.abc import AsyncIterator

import pytest

from gui_rl.check import TASKS, main
from gui_rl.desktop.desktops import Desktops
from gui_rl.desktop.inputs import SPARE, key_name, words_of, written
from gui_rl.desktop.screen import DesktopScreen
from gui_rl.screens.actions import Coordinates, Drag, Point, Press, Type
from gui_rl.screens.protocol import ScreenSize
from gui_rl.screens.sites import Visit
from tests.gui_rl.conftest import needs

SIZE = ScreenSize(800, 600)
UNIT = Coordinates(True, SIZE.width, SIZE.height)
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
async def desk() -> AsyncIterator[tuple[DesktopScreen, Visit]]:
    needs("xvfb")
    desktops = Desktops(SIZE)
    visit = (await desktops.ready()).begin()
    made = await desktops.screen(visit)
    yield made, visit
    await made.close()
    await desktops.close()
    assert not made.display.folder.exists() and not made.display.socket.exists()
    assert not made.programs.home.path.exists() and not made.programs.browsing.path.exists()


@pytest.fixture
def screen(desk: tuple[DesktopScreen, Visit]) -> DesktopScreen:
    return desk[0]


@pytest.mark.timeout(900)
def test_solutions_of_desktop_tasks_solve_them_and_cheats_none(capsys: pytest.CaptureFixture[str]) -> None:
    needs("xvfb")
    folder = TASKS.parent / "desktop_tasks"
    assert main([str(folder), "--backend", "xvfb", "--parallel", "3"]) == 0, capsys.readouterr().out
    assert "6 tasks: 6 solutions, 0 empty attempts and 0 cheats solve theirs" in capsys.readouterr().out


async def test_a_browser_on_a_desktop_cannot_read_files_of_the_host(screen: DesktopScreen) -> None:
    with tempfile.NamedTemporaryFile("w", dir="/var/tmp", suffix=".txt") as file:
        file.write("a secret of this machine")
        file.flush()
        await screen.open([f"file://{file.name}"])
        assert "secret" not in str(await screen.read("body", "innerText"))
    await screen.open(["file:///"])
    names = str(await screen.read("body", "innerText"))
    assert "usr" in names and "root" not in names and "var" not in names


async def test_a_page_cannot_be_changed_with_developer_tools(screen: DesktopScreen) -> None:
    await screen.open(["http://forms.test/register.html"])
    for keys in (("F12",), ("Control", "Shift", "j")):
        await screen.act(Press(keys))
    await screen.act(Press(("Control", "l")))
    await screen.act(Type("javascript:document.title=5\n"))
    assert [tab.title for tab in await screen.tabs()] == ["Register"]
    shown = await screen.shown(UNIT)
    assert [one.name for one in shown.elements if one.role == "window"] == ["Register - Chromium"]


POST = (
    "<form id=f method=post enctype=text/plain action=http://forms.test/_/state>"
    '<input name=\'{"set":{"account":"\' value=\'mine"}}\'></form><script>f.submit()</script>'
)


ADDRESSES = [
    f"data:text/html,{POST}",
    f"DATA:text/html;base64,{base64.b64encode(POST.encode()).decode()}",
    f"view-source:data:text/html,{POST}",
    "blob:http://forms.test/0",
    "filesystem:http://forms.test/temporary/x",
    "chrome://settings",
    "chrome://net-export",
    "devtools://devtools/bundled/inspector.html",
    "javascript:set('account','mine')",
    "about:srcdoc",
]


async def test_a_url_typed_by_an_agent_changes_no_state(desk: tuple[DesktopScreen, Visit]) -> None:
    screen, visit = desk
    await screen.open(["http://forms.test/register.html"])
    before = dict(visit.state)
    for address in ADDRESSES:
        await screen.act(Press(("Control", "l")))
        await screen.act(Type(f"{address}\n"))
        await asyncio.sleep(0.7)
        assert visit.state == before, address
    await screen.open(["http://forms.test/register.html"])
    assert "Register" in [tab.title for tab in await screen.tabs()]


async def test_programs_can_connect_to_neither_the_sites_nor_the_browser(screen: DesktopScreen) -> None:
    await screen.open(["http://forms.test/register.html"])
    script = "for port in 3128 9222; do (exec 3<>/dev/tcp/127.0.0.1/$port) 2>&1; done; ls -A / /run"
    said = (await screen.run(script, True)).output
    assert said.count("127.0.0.1/3128: Connection refused") == said.count("9222: Connection refused") == 1
    assert "browser" not in said and "sites" not in said


async def test_the_tree_lists_the_windows(screen: DesktopScreen) -> None:
    await screen.launch(["xterm", "-title", "Work"])
    await screen.open(["http://forms.test/register.html"])
    shown = await screen.shown(UNIT)
    windows = {one.name: one.states for one in shown.elements if one.role == "window"}
    assert windows == {"Work": (), "Register - Chromium": ("active",)}
    assert [one for one in shown.elements if one.name == "Create account"]
    assert await screen.window("work", False, "windowactivate")
    after = await screen.shown(UNIT)
    assert {one.name for one in after.elements} == {"Work", "Register - Chromium"}
    assert not await screen.window("work", True, "windowclose")
    await screen.act(Type("echo Zoë Ω > a\n"))
    assert await screen.file("~/a") == "Zoë Ω\n".encode() and await screen.file("../../etc/passwd") is None


async def test_a_browser_closed_by_the_agent_is_not_treated_as_crashed(screen: DesktopScreen) -> None:
    await screen.open(["http://forms.test/register.html"])
    await screen.act(Press(("Alt", "F4")))
    for _ in range(100):
        if not screen.programs.browsing_now:
            break
        await screen.display.calm()
    assert (await screen.shown(UNIT)).notes == ["(no window is open)"] and await screen.tabs() == []
    await screen.open(["http://forms.test/order.html"])
    assert [tab.url for tab in await screen.tabs()] == ["http://forms.test/order.html"]


def test_actions_become_arguments_of_xdotool() -> None:
    assert words_of(Press(("Control", "/"), 2), SIZE)[-1] == "ctrl+U002F" and key_name("ArrowUp") == "Up"
    drag = words_of(Drag(Point(0.5, 0.5), Point(0, 0)), SIZE)
    assert drag[:3] == ["mousemove", "0", "0"] and drag[-2:] == ["mouseup", "1"]
    assert drag.index("mousedown") < drag.index("400") and drag.count("mousemove") > 5
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 2 * SPARE + 1)))
    parts = written(Type("a" + text))
    assert "".join(part.text for part in parts) == "a" + text  # type: ignore[union-attr]
    assert [len(part.text) for part in parts] == [SPARE + 1, SPARE, 1]  # type: ignore[union-attr]
