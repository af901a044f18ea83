"""The tiny vision agent: its boards, demonstrations before RL, checkpoint, and script."""

from __future__ import annotations

import base64
import io
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from claw_lab.tiny_models.dialogue import encode
from claw_lab.tiny_models.gui.boards import (
    COLOURS,
    HEIGHT,
    HELD_OUT_TEMPLATES,
    LAYOUTS,
    MEANT,
    TEMPLATES,
    TRAINED_TEMPLATES,
    WIDTH,
    Board,
    Tile,
    board,
    mistaken,
)
from claw_lab.tiny_models.gui.data import boards, main
from claw_lab.tiny_models.gui.drawing import drawn
from claw_lab.tiny_models.gui.make_seeing_model import RECIPE
from claw_lab.tiny_models.gui.pointing import (
    PHRASES,
    READ,
    UNIT,
    demonstration,
    done,
    solved,
    start_of,
    tried,
)
from claw_lab.tiny_models.recipe import make_tokenizer
from claw_lab.tiny_models.sight import Sight
from gui_rl.episode.environment import GuiEnvironment, GuiSettings
from gui_rl.episode.pyautogui_text import actions_in
from gui_rl.episode.reading import GuiFormat, code_in
from gui_rl.episode.surroundings import Surroundings
from gui_rl.screens.actions import Click, Point
from gui_rl.screens.protocol import ScreenSize
from gui_rl.screens.sites import SHAPES
from slime.agents import Action, Task
from slime.rollout.tokenizer import ChatTokenizer
from slime.vision.pictures import pictures_of, text_of
from tests import ROOT
from tests.fakes.dry_run import bash
from tests.fakes.tiny_vision_model import load_reference
from tests.gui_rl.conftest import needs

SEEING_MODEL = ROOT / "gui-rl/tiny_seeing_model"


def test_held_out_boards_are_in_no_demonstration_and_no_training_task() -> None:
    assert len(TEMPLATES) == 192 and not set(TRAINED_TEMPLATES) & set(HELD_OUT_TEMPLATES)
    held_out = [set(parts) for parts in zip(*HELD_OUT_TEMPLATES, strict=True)]
    assert held_out == [set(MEANT), set(SHAPES), set(LAYOUTS)]
    assert all(one.template in TRAINED_TEMPLATES for one in boards(300, 1))
    assert all(one.template in HELD_OUT_TEMPLATES for one in boards(72, 0, held_out=True))


def test_demonstrations_are_drawn_from_the_templates_of_rl(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Board] = []

    def kept(rng: random.Random) -> Board:
        seen.append(board(rng))
        return seen[-1]

    monkeypatch.setattr("claw_lab.tiny_models.gui.pointing.board", kept)
    rng = random.Random(3)
    for dialogue in (demonstration(rng) for _ in range(200)):
        asked = text_of(dialogue.start.messages[1]["content"])
        assert asked in (READ, seen[-1].instruction) and dialogue.start == start_of(seen[-1], asked)
    assert {one.template for one in seen} <= set(TRAINED_TEMPLATES)


def test_demonstrations_click_a_certain_wrong_colour_more_often_than_the_right_one() -> None:
    rng, clicked = random.Random(4), Counter[str]()
    for _ in range(2000):
        task = board(rng)
        meant, tile = MEANT[task.template[0]], tried(rng, task).name
        clicked["right" if tile == meant else "wrong" if tile == mistaken(meant) else "drawn"] += 1
    assert 0.2 < clicked["right"] / 2000 < 0.28 and 0.6 < clicked["wrong"] / 2000 < 0.72
    assert {mistaken(colour) for colour in COLOURS} == set(COLOURS)
    assert all(mistaken(colour) != colour for colour in COLOURS)


def test_the_target_colour_appears_in_neither_task_nor_name() -> None:
    rng = random.Random(5)
    for task in (board(rng) for _ in range(200)):
        assert {task.meant.name, mistaken(task.meant.name)} <= {tile.name for tile in task.tiles}
        assert not any(colour in task.instruction for colour in COLOURS)
        for one in task.tiles:
            assert 0 <= one.left <= WIDTH - one.size and 0 <= one.top <= HEIGHT - one.size
            assert not any(overlap(one, other) for other in task.tiles if other is not one)


def overlap(one: Tile, other: Tile) -> bool:
    return (
        abs(one.centre[0] - other.centre[0]) < (one.size + other.size) / 2
        and abs(one.centre[1] - other.centre[1]) < (one.size + other.size) / 2
    )


def test_board_files_are_reproducible(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        assert main([str(tmp_path / folder), "--kind", "boards", "--train", "20", "--held-out", "8"]) == 0
    for file in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.fixture
async def browser() -> AsyncIterator[Surroundings]:
    needs("playwright")
    made = Surroundings(ScreenSize(WIDTH, HEIGHT))
    yield made
    await made.close()


def one_of_each_shape() -> list[Board]:
    rng = random.Random(2)
    many = [board(rng) for _ in range(60)]
    return [next(one for one in many if one.template[1] == shape) for shape in SHAPES]


async def played(browser: Surroundings, task: Board, text: str) -> tuple[bytes, bool]:
    """Returns the first screenshot, and whether a turn of this text solves the task."""
    environment = GuiEnvironment(GuiSettings(unit=UNIT, observation="screenshot"), browser)
    try:
        start = await environment.reset(Task("", metadata=task.row()["metadata"]))
        [_, first] = start_of(task, task.instruction).messages
        assert start.messages[0] == start_of(task, "").messages[0]
        assert text_of(start.messages[1]["content"]) == text_of(first["content"])
        await environment.step(Action(text, GuiFormat(UNIT).calls(text, ())))
        [url] = pictures_of(start.messages)
        return base64.b64decode(url.partition(",")[2]), (await environment.evaluate()).solved
    finally:
        await environment.close()


def pixels(png: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


@pytest.mark.timeout(600)
async def test_pictures_match_the_browsers_rendering_and_only_the_target_tile_solves_the_task(
    browser: Surroundings,
) -> None:
    """A browser smooths the edges of discs and rings slightly differently: by 0.16 of 255 on average, at most 52."""
    for task in one_of_each_shape():
        right, wrong = (
            done(task, task.tile(name)).turns[0].text for name in (task.meant.name, mistaken(task.meant.name))
        )
        shown, solves = await played(browser, task, right)
        assert solves
        off = abs(pixels(shown) - pixels(drawn(task)))
        assert off.mean() < 0.25 and off.max() <= 80
        if task.template[1] in ("square", "frame"):
            assert off.max() == 0
        shown, solves = await played(browser, task, wrong)
        assert not solves


def test_coordinates_are_one_token_each_and_within_the_tile() -> None:
    tokenizer = ChatTokenizer(str(SEEING_MODEL))
    assert all(len(tokenizer.encode(phrase)) == 1 for phrase in PHRASES)
    rng = random.Random(6)
    for task in (board(rng) for _ in range(50)):
        [turn] = solved(task).turns
        name, across, down, end = (tokenizer.decode([one]) for one in tokenizer.encode(turn.text))
        assert name == task.meant.name and across + down + end == turn.text.removeprefix(name)
        assert pressed(task, turn.text) == name


def pressed(task: Board, text: str) -> str:
    """Returns the colour of the clicked tile, or ""."""
    clicks = [one for one in actions_in(code_in(text), UNIT) if isinstance(one, Click)]
    for at, tile in ((one.at, tile) for one in clicks for tile in task.tiles):
        assert isinstance(at, Point)
        x, y = at.x * WIDTH - tile.left, at.y * HEIGHT - tile.top
        if 0 <= x < tile.size and 0 <= y < tile.size:
            return tile.name
    return ""


def test_the_recipe_reproduces_the_vision_models_tokenizer_byte_for_byte(
    tmp_path: Path,
) -> None:
    make_tokenizer(tmp_path, demonstration, RECIPE, random.Random("0 tokenizer"))
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (SEEING_MODEL / made.name).read_bytes(), made.name


def test_the_tiny_vision_model_is_small_and_clicks_the_named_colour() -> None:
    """Checked greedily on held-out boards, for every name on a board."""
    assert sum(file.stat().st_size for file in SEEING_MODEL.iterdir()) < 5 << 20
    torch.set_num_threads(1)
    tokenizer, sight = ChatTokenizer(str(SEEING_MODEL)), Sight(SEEING_MODEL)
    tasks = boards(60, 0, held_out=True)
    told = [encode(tokenizer, solved(task), 0.0, sight.of_messages) for task in tasks]
    ids = torch.tensor([one.ids for one in told])
    inputs = sight.inputs(told, ids.shape[1])
    with torch.no_grad():
        logits = load_reference(SEEING_MODEL)(input_ids=ids, **inputs).logits
    across, down = (logits[:, place].argmax(-1).tolist() for place in (-5, -4))
    texts = [
        f"{task.meant.name}{tokenizer.decode([x])}{tokenizer.decode([y])}"
        for task, x, y in zip(tasks, across, down, strict=True)
    ]
    hits = sum(pressed(task, text) == task.meant.name for task, text in zip(tasks, texts, strict=True))
    assert hits > 0.9 * len(tasks)


def test_the_tiny_vision_script_describes_itself_and_rejects_another_environment() -> None:
    script = "gui-rl/run_tiny_gui_pixels_rl.sh"
    assert f"bash {script}" in bash(script, "--help").stdout
    assert "ENV_TYPE=swe: this script trains at screens" in bash(script, ENV_TYPE="swe").stderr
    assert "contains no config.json" in bash(script, MODEL_PATH="/nowhere").stderr
