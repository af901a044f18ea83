"""The tiny agent: its pages and what it is shown of them before RL."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gui_rl.made_page import made_page
from gui_rl.reading import GuiFormat
from gui_rl.tiny.data import errands, write
from gui_rl.tiny.demonstrations import UNIT as TAGS
from gui_rl.tiny.demonstrations import Screen, demonstration, solved, start_of
from gui_rl.tiny.pages import FAMILIES, HELD_OUT_TEMPLATES, TEMPLATES, TRAINED_TEMPLATES, errand
from slime.agents import Task
from tests.gui_rl.conftest import UNIT, MakeEnvironment


def template_of(asked: str, text: str) -> tuple[str, str, str]:
    """From what an episode shows."""
    theme = re.findall(r'heading "(\w+)"', text)[0]
    for family, wordings in FAMILIES.items():
        for wording in wordings:
            pattern = re.sub(r"\\\{\w\\\}", r"\\w+", re.escape(wording))
            if re.fullmatch(pattern, asked):
                return family, wording, theme
    raise AssertionError(asked)


def test_templates_of_held_out_tasks_come_in_no_demonstration_and_no_task_of_rl() -> None:
    assert len(TEMPLATES) == 144 and not set(TRAINED_TEMPLATES) & set(HELD_OUT_TEMPLATES)
    assert {family for family, *_ in HELD_OUT_TEMPLATES} == set(FAMILIES)
    assert all(one.template in TRAINED_TEMPLATES for one in errands(300, 1))
    assert all(one.template in HELD_OUT_TEMPLATES for one in errands(100, 0, held_out=True))
    rng = random.Random(3)
    for _ in range(300):
        asked, _, text = str(demonstration(rng).start.messages[1]["content"]).partition("\n")
        assert template_of(asked, text) in TRAINED_TEMPLATES


def test_demonstrations_hardly_tell_which_widget_is_meant() -> None:
    rng, right, first, count = random.Random(4), 0, 0, 0
    for _ in range(2000):
        shown = demonstration(rng)
        asked, _, text = str(shown.start.messages[1]["content"]).partition("\n")
        if template_of(asked, text)[0] != "press":
            continue
        places = {name: f"({tag})" for name, tag in re.findall(r'button "(\w+)" (tag_\d)', text)}
        clicked, count = shown.turns[0].text, count + 1
        right += any(clicked.endswith(place) for name, place in places.items() if name in asked)
        first += clicked.endswith(next(iter(places.values())))
    assert 0.35 < right / count < 0.6 and first / count > 0.5


def test_what_solves_a_task_can_be_read_and_says_so_in_the_end() -> None:
    rng = random.Random(5)
    for _ in range(50):
        told = solved(errand(rng))
        assert [turn.text for turn in told.turns][-1] == "DONE"
        assert all(GuiFormat(TAGS).calls(turn.text, ()) for turn in told.turns)


def test_files_of_tasks_are_the_same_every_time(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write(tmp_path / folder, 20, 8, seed=5)
    for file in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize("surroundings", ["playwright", "selenium"], indirect=True)
@pytest.mark.timeout(600)
async def test_demonstrations_show_pages_as_a_browser_does(environment: MakeEnvironment) -> None:
    for family in FAMILIES:
        task = next(one for one in errands(60, 2) if one.template[0] == family)
        one = environment(unit=replace(UNIT, tags=True))
        try:
            start = await one.reset(Task("", metadata=task.row()["metadata"]))
        finally:
            await one.close()
        told = start_of(task.instruction, Screen(task.pages[0]).text())
        assert start.messages == told.messages


def test_names_on_made_pages_are_text() -> None:
    page = made_page(
        {"title": "<b>", "left": 1, "gap": 2, "widgets": [{"kind": "button", "name": "<script>"}]}
    )
    assert "<b>" not in page and page.count("<script>") == 1  # the one of the page itself
    with pytest.raises(ValueError, match="no widget 'slot'"):
        made_page({"title": "", "left": 1, "gap": 2, "widgets": [{"kind": "slot", "name": "x"}]})
