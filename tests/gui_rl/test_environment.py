"""Episodes in a real browser: observations and actions, files of an episode, and a crashing browser."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from claw_lab.tiny_models.gui.data import errands
from gui_rl.episode.environment import GuiEnvironment
from gui_rl.episode.reading import GuiFormat
from gui_rl.episode.scripted import Seen, play, turn
from gui_rl.episode.surroundings import BACKENDS, Backend, Surroundings
from gui_rl.recording import main as show_all
from slime.agents import Action, Observation, Task
from slime.errors import EnvironmentAway
from tests.gui_rl.conftest import UNIT, MakeEnvironment, needs

FORMAT = GuiFormat(UNIT)
pytestmark = pytest.mark.timeout(600)


def row(pages: Sequence[dict[str, Any]], expected: object = None, **more: object) -> dict[str, Any]:
    """Returns metadata of a task on generated pages."""
    evaluator = {
        "func": "exact_match",
        "result": {"type": "site_state"},
        "expected": {"type": "rule", "rules": {"expected": expected}},
    }
    opened = {"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["http://pages.test/0"]}}
    config = {
        "id": "t",
        "instruction": "do it",
        "pages": pages,
        "config": [opened],
        "evaluator": evaluator,
        **more,
    }
    return {"domain": "test", "task_config": config}


def page(*widgets: tuple[str, str], title: str = "Page") -> dict[str, Any]:
    return {"title": title, "left": 20, "gap": 10, "widgets": [{"kind": k, "name": n} for k, n in widgets]}


async def say(environment: GuiEnvironment, text: str) -> Observation:
    return await environment.step(Action(text, FORMAT.calls(text, ())))


async def test_the_tree_shows_interactive_elements_and_their_state(environment: MakeEnvironment) -> None:
    one = environment()
    metadata = row([page(("textbox", "Name"), ("checkbox", "News"), ("button", "Save"))], {})
    script = [["click", "textbox", "Name"], ["write", 'Zoë "Ω" 😀\tx'], ["click", "checkbox", "News"]]
    try:
        start = await one.reset(Task("", metadata=metadata))
        first = str(start.messages[-1]["content"])
        assert [line.split(" ")[0] for line in first.splitlines() if not line.startswith("window ")] == [
            "do",
            "heading",
            "textbox",
            "checkbox",
            "button",
        ]
        for step in script:
            seen = await say(one, turn(step, Seen.of(first)))
        last = str(seen.messages[-1]["content"])
        assert '= "Zoë \\"Ω\\" 😀"' in last and 'checkbox "News"' in last and "checked" in last
        assert one.visit is not None and one.visit.state["written"] == {"Name": 'Zoë "Ω" 😀'}
    finally:
        await one.close()


async def test_an_invalid_turn_gets_an_error_and_changes_nothing(environment: MakeEnvironment) -> None:
    one = environment()
    try:
        await one.reset(Task("", metadata=row([page(("button", "Save"))])))
        seen = await one.step(Action("", ()))
        assert one.acted == 0 and not seen.done and 'button "Save"' in str(seen.messages[-1]["content"])
        outcome = await one.evaluate()
        assert (outcome.score, outcome.solved) == (-1.0, False)
    finally:
        await one.close()


@pytest.mark.parametrize("kind", ["screenshot", "screenshot_a11y_tree"])
async def test_a_screenshot_is_sent_as_a_content_part(environment: MakeEnvironment, kind: str) -> None:
    one = environment(observation=kind)
    try:
        start = await one.reset(Task("", metadata=row([page(("button", "Save"))])))
        image, text = start.messages[-1]["content"]
        assert image["type"] == "image_url" and text["type"] == "text" and text["text"].startswith("do it")
        assert ('button "Save"' in text["text"]) == (kind == "screenshot_a11y_tree")
        png = base64.b64decode(image["image_url"]["url"].removeprefix("data:image/png;base64,"))
        assert png[:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(png[16:20], "big") == 800
    finally:
        await one.close()


async def test_concurrent_and_consecutive_episodes_share_no_state(
    environment: MakeEnvironment, surroundings: Surroundings
) -> None:
    tasks = errands(6 if surroundings.backend == "playwright" else 3, 3)

    async def solve(number: int, steps: Sequence[tuple[str, str]]) -> bool:
        script = [["write", name] if kind == "write" else ["click", kind, name] for kind, name in steps]
        return (
            await play(environment(), FORMAT, tasks[number].row()["metadata"], [*script, ["done"]])
        ).solved

    assert all(await asyncio.gather(*(solve(n, one.steps) for n, one in enumerate(tasks))))
    assert not any(await asyncio.gather(*(solve(n, ()) for n in range(len(tasks)))))


async def test_pages_cannot_connect_to_other_servers(environment: MakeEnvironment) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    urls = [f"http://127.0.0.1:{port}/", f"http://localhost:{port}/", "http://example.com/"]
    metadata = row([], None)
    metadata["task_config"]["config"][0]["parameters"]["urls_to_open"] = urls
    one = environment()
    try:
        start = await one.reset(Task("", metadata=metadata))
        assert "there is no such site" in str(start.messages[-1]["content"])
        assert one.screen is not None and await one.screen.read("body", "innerText") == [
            "example.com: there is no such site"
        ]
    finally:
        await one.close()
        server.close()


def check_recording(results: Path) -> None:
    [folder] = results.glob("test/one_task/*")
    assert len(list(folder.glob("step_*.png"))) == 5
    assert len((folder / "traj.jsonl").read_text().splitlines()) == 4
    shown = (folder / "index.html").read_text()
    assert shown.count("<circle") == 2 and "a&lt;b" in shown and "a<b" not in shown and "worth 1" in shown
    assert show_all([str(results)]) == 0 and "do it" in (results / "index.html").read_text()


async def test_an_episode_is_recorded_as_an_html_page(environment: MakeEnvironment, tmp_path: Path) -> None:
    metadata = row(
        [page(("textbox", "Name"), ("button", "<Save>"))], {"written": {"Name": "a<b"}, "pressed": ["<Save>"]}
    )
    metadata["task_config"]["id"] = "../../one task"
    script = [["click", "textbox", "Name"], ["write", "a<b"], ["click", "button", "<Save>"], ["done"]]
    assert (await play(environment(results=tmp_path), FORMAT, metadata, script)).solved
    check_recording(tmp_path)


@pytest.mark.parametrize("surroundings", ["playwright"], indirect=True)  # independent of the browser
async def test_giving_up_solves_only_infeasible_tasks(environment: MakeEnvironment) -> None:
    possible, impossible = row([page(("button", "Save"))], {}), row([page(("button", "Save"))])
    impossible["task_config"]["evaluator"] = {"func": "infeasible"}
    for metadata, script, solved in (
        (possible, [["done"]], True),
        (possible, [["fail"]], False),
        (impossible, [["fail"]], True),
        (impossible, [["done"]], False),
        (impossible, [], False),  # truncated
    ):
        assert (await play(environment(), FORMAT, metadata, script)).solved is solved


async def test_a_crashed_browser_fails_no_task_and_is_replaced(
    environment: MakeEnvironment, surroundings: Surroundings
) -> None:
    metadata = row([page(("button", "Save"))], {"pressed": ["Save"]})
    one = environment()
    try:
        await one.reset(Task("", metadata=metadata))
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # a zombie also counts
                if "--type=" not in " ".join(child.cmdline()) and "chrom" in child.name():
                    os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(EnvironmentAway):
            await say(one, "pyautogui.click(1, 1)")
    finally:
        await one.close()
    outcome = await play(environment(), FORMAT, metadata, [["click", "button", "Save"], ["done"]])
    assert outcome.solved and surroundings.here().starts == 2


SCRIPT = """
import asyncio, sys
from gui_rl.screens.chromium import ScreenSize
from gui_rl.episode.surroundings import BACKENDS, Backend, Surroundings

async def main():
    browser = Surroundings(ScreenSize(), sys.argv[1]).here()
    sites = await browser.ready()
    await (await browser.screen(sites.begin())).open([])
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_browser_ends_when_its_process_is_killed(backend: Backend) -> None:
    needs(backend)
    command = [sys.executable, "-c", SCRIPT, backend]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    assert len(children) > 2
    psutil.wait_procs(children, timeout=120)
    left = [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert left == []


async def test_a_closed_browser_leaves_no_files_or_processes(
    environment: MakeEnvironment, surroundings: Surroundings
) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    await play(environment(), FORMAT, row([page(("button", "Save"))], {}), [["done"]])
    browser = surroundings.here()
    assert not browser.sites.visits
    await surroundings.close()
    left = {
        child.pid
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE
    }
    assert left <= before
