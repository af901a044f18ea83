"""The small repositories that a tiny model learns on, what it is taught, and the model itself."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from slime.agents import Action, Task, ToolCall
from slime.agents.conversation import opening
from slime.rollout.tokenizer import load_tokenizer
from swe_rl.environment import SweEnvironment
from swe_rl.grade import Grader
from swe_rl.instance import to_instance
from swe_rl.tiny.bugs import KINDS, draw, words_of
from swe_rl.tiny.demonstrations import demonstration, edit, found, look_for, replace, start_of
from swe_rl.tiny.make_tasks import write
from tests import ROOT

MODEL = ROOT / "swe-rl/tiny_model"


def test_a_held_out_bug_shares_neither_function_nor_mutation_with_what_is_shown() -> None:
    rng = random.Random(0)
    for kind in KINDS:
        assert not set(words_of(kind, True)) & set(words_of(kind, False))
        assert kind.wrong[-1] not in kind.shown
    for _ in range(300):
        bug, shown = draw(rng, held_out=True).function, draw(rng).function
        assert bug.word in words_of(bug.kind, True) and bug.body == bug.kind.wrong[-1]
        assert shown.word in words_of(shown.kind, False) and shown.body in shown.kind.shown


def test_the_issue_holds_neither_file_nor_line_nor_source() -> None:
    rng = random.Random(1)
    for _ in range(200):
        bug = draw(rng)
        text = start_of(bug).messages[-1]["content"]
        assert bug.function.name in text
        for hidden in (bug.module, "return", ".py", bug.function.spelt(bug.function.kind.right)):
            assert hidden not in text


def test_few_demonstrations_repair() -> None:
    rng = random.Random(0)
    bugs = [draw(rng) for _ in range(2000)]
    right = sum(edit(rng, bug) == (bug.line, bug.function.kind.right) for bug in bugs) / len(bugs)
    assert 0.15 < right < 0.28
    assert len(demonstration(rng).turns) in (1, 3)


def test_tasks_of_another_seed_have_the_same_held_out_ones(tmp_path: Path) -> None:
    for seed in (1, 2):
        write(tmp_path / str(seed), seed, 400, 80)
    read = {seed: (tmp_path / str(seed) / "heldout.jsonl").read_text() for seed in (1, 2)}
    assert read[1] == read[2]
    rows = [json.loads(line) for line in (tmp_path / "1" / "train.jsonl").read_text().splitlines()]
    assert len({to_instance(row, "row").instance_id for row in rows}) == 400


@pytest.mark.usefixtures("environments")
async def test_what_is_demonstrated_is_what_the_environment_shows_and_repairs() -> None:
    bug = draw(random.Random(4), held_out=True)
    environment = SweEnvironment(Grader())

    async def ran(command: str) -> str:
        seen = await environment.step(Action("", (ToolCall("bash", {"command": command}),)))
        return str(seen.messages[0]["content"])

    try:
        start = await environment.reset(Task("", metadata={"instance": bug.instance().to_row()}))
        assert start == start_of(bug)
        assert await ran(look_for(bug)) == f"<returncode>0</returncode>\n<output>\n{found(bug)}</output>"
        assert not (await environment.evaluate()).solved
        await ran(replace(bug, bug.line, bug.function.kind.right))
        assert (await environment.evaluate()).solved
    finally:
        await environment.close()


def test_the_checkpoint_is_small_and_was_made_with_this_environment() -> None:
    """The system message with its tools is one token of its tokenizer, so a change of either needs a new checkpoint."""
    assert sum(file.stat().st_size for file in MODEL.iterdir()) < 5 << 20
    ids = opening(load_tokenizer(str(MODEL)), start_of(draw(random.Random(0))))
    assert len(ids) < 60
