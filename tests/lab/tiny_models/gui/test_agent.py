"""The tiny agent: its pages, demonstrations before RL, checkpoint, and training script."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from claw_lab.tiny_models.dialogue import Dialogue
from claw_lab.tiny_models.gui.data import errands, write
from claw_lab.tiny_models.gui.demonstrations import (
    PHRASES,
    READ,
    READINGS,
    demonstration,
    mistaken,
    solved,
    start_of,
)
from claw_lab.tiny_models.gui.demonstrations import UNIT as TAGS
from claw_lab.tiny_models.gui.make_model import RECIPE
from claw_lab.tiny_models.gui.pages import (
    BUTTONS,
    FAMILIES,
    HELD_OUT_TEMPLATES,
    MEANT,
    TEMPLATES,
    TRAINED_TEMPLATES,
    Errand,
    Template,
    errand,
)
from claw_lab.tiny_models.recipe import make_tokenizer
from gui_rl.episode.environment import GuiEnvironment
from gui_rl.episode.reading import GuiFormat
from gui_rl.screens.sites import made_page
from slime.agents import Action, Task
from slime.agents.conversation import opening
from slime.rollout.tokenizer import ChatTokenizer
from tests import ROOT
from tests.fakes.dry_run import bash
from tests.gui_rl.conftest import MakeEnvironment

TINY_MODEL = ROOT / "gui-rl/tiny_model"
OF_ROLE = {role: family for family, role in FAMILIES.items()}


def shown_tasks(rng: random.Random, count: int) -> Iterator[tuple[Template, Dialogue]]:
    """Yields demonstrations other than exercises, each with the template of an episode."""
    for dialogue in (demonstration(rng) for _ in range(count)):
        asked, _, text = str(dialogue.start.messages[1]["content"]).partition("\n")
        if asked != READ:
            role = re.findall(r"^(\w+)", text, re.M)[1]
            yield (OF_ROLE[role], asked.split()[0], re.findall(r'heading "(\w+)"', text)[0]), dialogue


def test_held_out_templates_are_in_no_demonstration_and_no_training_task() -> None:
    assert len(TEMPLATES) == 192 and not set(TRAINED_TEMPLATES) & set(HELD_OUT_TEMPLATES)
    assert {family for family, *_ in HELD_OUT_TEMPLATES} == set(FAMILIES)
    assert {wording for _, wording, _ in HELD_OUT_TEMPLATES} == set(MEANT)
    assert all(one.template in TRAINED_TEMPLATES for one in errands(300, 1))
    assert all(one.template in HELD_OUT_TEMPLATES for one in errands(72, 0, held_out=True))
    seen = [template for template, _ in shown_tasks(random.Random(3), 600)]
    assert len(seen) > 100 and set(seen) <= set(TRAINED_TEMPLATES)


def test_demonstrations_show_a_certain_wrong_button_more_often_than_the_right_one() -> None:
    pressed: Counter[str] = Counter()
    for (_, wording, _), dialogue in shown_tasks(random.Random(4), int(2000 / (1 - READINGS))):
        meant, button = MEANT[wording], dialogue.turns[-1].text.split('"')[1]
        pressed["right" if button == meant else "wrong" if button == mistaken(meant) else "drawn"] += 1
    right, wrong = pressed["right"] / pressed.total(), pressed["wrong"] / pressed.total()
    assert 0.2 < right < 0.3 and 0.55 < wrong < 0.75
    assert len({mistaken(button) for button in BUTTONS}) == len(BUTTONS)
    assert all(mistaken(button) != button for button in BUTTONS)


def test_a_solution_is_readable_and_reports_success() -> None:
    rng = random.Random(5)
    for _ in range(50):
        told = solved(errand(rng))
        assert told.turns[-1].text.endswith("\nDONE")
        assert all(GuiFormat(TAGS).calls(turn.text, ()) for turn in told.turns)


def test_task_files_are_reproducible(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write(tmp_path / folder, 20, 8, seed=5)
    for file in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def one_of_each_family() -> list[Errand]:
    return [next(one for one in errands(60, 2) if one.template[0] == family) for family in FAMILIES]


async def played(environment: GuiEnvironment, task: Errand, told: Dialogue) -> bool:
    """Plays the turns of a demonstration; every screen must match it."""
    try:
        start = await environment.reset(Task("", metadata=task.row()["metadata"]))
        assert start.messages == told.start.messages
        for turn in told.turns:
            seen = await environment.step(Action(turn.text, GuiFormat(TAGS).calls(turn.text, ())))
            assert list(seen.messages) == list(turn.shown)
        return (await environment.evaluate()).solved
    finally:
        await environment.close()


@pytest.mark.parametrize("surroundings", ["playwright", "selenium"], indirect=True)
@pytest.mark.timeout(600)
async def test_demonstrations_match_the_browsers_rendering_and_solve_the_tasks(
    environment: MakeEnvironment,
) -> None:
    for task in one_of_each_family():
        assert await played(environment(unit=TAGS), task, solved(task))


@pytest.mark.parametrize("surroundings", ["playwright"], indirect=True)
@pytest.mark.timeout(600)
async def test_the_button_favoured_by_the_demonstrations_solves_no_task(environment: MakeEnvironment) -> None:
    for task in one_of_each_family()[:2]:
        right = task.steps[-1][1]
        wrong = Errand(
            task.template, task.instruction, task.pages, (*task.steps[:-1], ("button", mistaken(right))), {}
        )
        assert not await played(environment(unit=TAGS), task, solved(wrong))


def test_names_on_generated_pages_are_escaped() -> None:
    page = made_page(
        {"title": "<b>", "left": 1, "gap": 2, "widgets": [{"kind": "button", "name": "<script>"}]}
    )
    assert "<b>" not in page and page.count("<script>") == 1  # only the page's own script
    with pytest.raises(ValueError, match="no widget 'slot'"):
        made_page({"title": "", "left": 1, "gap": 2, "widgets": [{"kind": "slot", "name": "x"}]})


def test_a_tag_is_one_token_directly_after_its_name() -> None:
    tokenizer = ChatTokenizer(str(TINY_MODEL))
    text = start_of("", 'button "Save" tag_7').messages[1]["content"]
    assert [tokenizer.decode([one]) for one in tokenizer.encode(str(text))] == [
        'button "',
        "Save",
        '" tag_7',
    ]
    assert all(len(tokenizer.encode(phrase)) == 1 for phrase in PHRASES)


def test_the_recipe_reproduces_the_shipped_tokenizer_byte_for_byte(tmp_path: Path) -> None:
    make_tokenizer(tmp_path, demonstration, RECIPE, random.Random("0 tokenizer"))
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (TINY_MODEL / made.name).read_bytes(), made.name


def test_the_tiny_model_is_small_and_matches_the_current_rules() -> None:
    assert sum(file.stat().st_size for file in TINY_MODEL.iterdir()) < 5 << 20
    tokenizer = ChatTokenizer(str(TINY_MODEL))
    [asked] = errands(1, 0, held_out=True)
    [first, *_] = solved(asked).start.messages[1:]
    ids = opening(tokenizer, start_of(asked.instruction, str(first["content"]).partition("\n")[2]))
    assert "pyautogui.dragTo" in tokenizer.decode(ids[3:4]) and len(ids) < 60


def test_the_tiny_script_describes_itself_and_rejects_another_environment() -> None:
    script = "gui-rl/run_tiny_gui_rl.sh"
    assert f"bash {script}" in bash(script, "--help").stdout
    assert "ENV_TYPE=swe: this script trains at screens" in bash(script, ENV_TYPE="swe").stderr
    assert "contains no config.json" in bash(script, MODEL_PATH="/nowhere").stderr
