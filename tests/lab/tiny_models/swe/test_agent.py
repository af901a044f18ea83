"""Small repositories for a tiny model, its demonstrations, and the model itself."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import Qwen3ForCausalLM

from claw_lab.tiny_models.dialogue import Dialogue, encode
from claw_lab.tiny_models.recipe import make_tokenizer
from claw_lab.tiny_models.swe.bugs import HELD_OUT_BODIES, KINDS, Bug, draw, mutations, words_of
from claw_lab.tiny_models.swe.demonstrations import (
    DONE,
    FITTING,
    MISTAKEN,
    MISTAKES,
    alike,
    body,
    demonstration,
    grep_output,
    look_for,
    ran,
    replace,
    start_of,
)
from claw_lab.tiny_models.swe.make_model import RECIPE
from claw_lab.tiny_models.swe.make_tasks import write
from slime.agents import Action, Task, ToolCall
from slime.agents.conversation import opening
from slime.rollout.tokenizer import load_tokenizer
from swe_rl.environment import SweEnvironment
from swe_rl.grade import Grader
from swe_rl.instance import to_instance
from tests import ROOT

MODEL = ROOT / "swe-rl/tiny_model"


def test_a_held_out_bug_shares_neither_function_nor_mutation_with_demonstrations() -> None:
    rng = random.Random(0)
    for kind in KINDS:
        assert not set(words_of(kind, True)) & set(words_of(kind, False))
        usual, any_of_them = mutations(kind, held_out=False)
        assert set(usual) < set(any_of_them) and len(any_of_them) > 40
        assert not {kind.right, *HELD_OUT_BODIES} & set(any_of_them)
    for _ in range(300):
        bug, shown = draw(rng, held_out=True).function, draw(rng).function
        assert bug.word in words_of(bug.kind, True) and bug.body == bug.kind.wrong[-1]
        assert shown.word in words_of(shown.kind, False) and shown.body in mutations(shown.kind, False)[1]


def test_the_issue_contains_neither_file_nor_line_nor_source() -> None:
    rng = random.Random(1)
    for _ in range(200):
        bug = draw(rng)
        text = start_of(bug).messages[-1]["content"]
        assert bug.function.name in text
        for hidden in (bug.module, "return", ".py", bug.function.spelt(bug.function.kind.right)):
            assert hidden not in text


def test_no_name_and_no_mutation_of_a_held_out_bug_is_demonstrated() -> None:
    rng = random.Random(3)
    names = {f"{kind.name}_{word}" for kind in KINDS for word in words_of(kind, True)}
    assert len(HELD_OUT_BODIES) == len(KINDS)
    held_out = [draw(rng, held_out=True) for _ in range(200)]
    assert {bug.function.name for bug in held_out} <= names
    assert {bug.function.body for bug in held_out} <= HELD_OUT_BODIES
    for _ in range(300):
        shown = demonstration(rng)
        text = str(shown.start.messages) + str(shown.turns)
        assert not names & set(re.findall(r"[a-z]+_[a-z]+", text))
        body = re.findall(r"return (.*?)(?:/'|\\n)", text)
        variables = re.findall(r"def \w+\((\w)(?:, (\w))?\)", text)[0]
        for spelt in body:
            assert with_x_and_y(spelt, variables) not in HELD_OUT_BODIES


def with_x_and_y(spelt: str, variables: tuple[str, ...]) -> str:
    back = {name: place for name, place in zip(variables, "xy", strict=True) if name}
    return re.sub(r"\b[a-z]\b", lambda found: back[found[0]], spelt)


def test_demonstrations_show_a_certain_wrong_body_more_often_than_the_right_one() -> None:
    rng = random.Random(4)
    for kind in KINDS:
        seen = Counter(body(rng, kind) for _ in range(1000))
        assert seen[kind.right] / 1000 < FITTING + (1 - FITTING - MISTAKEN) / len(alike(kind)) + 0.04 < 0.25
        assert seen[MISTAKES[kind.name]] > 2 * seen[kind.right]


def test_the_demonstrated_wrong_body_is_correct_for_no_training_or_held_out_mutation() -> None:
    assert set(MISTAKES) == {kind.name for kind in KINDS}
    assert len(set(MISTAKES.values())) == len(KINDS)
    assert not set(MISTAKES.values()) & HELD_OUT_BODIES
    for kind in KINDS:
        for mistake in (MISTAKES[other.name] for other in alike(kind)):
            assert kind.shows(mistake), kind.name


def test_every_demonstration_reads_and_then_changes_the_shown_line() -> None:
    rng = random.Random(5)
    for _ in range(200):
        look, change, last = demonstration(rng).turns
        assert "grep" in look.text and last.text == DONE
        [(module, line)] = re.findall(r"(\w+)\.py-(\d)-", str(look.shown[0]["content"]))
        assert f"sed -i '{line}s/" in change.text and f" {module}.py" in change.text


def test_the_held_out_tasks_do_not_depend_on_the_seed(tmp_path: Path) -> None:
    for seed in (1, 2):
        write(tmp_path / str(seed), seed, 400, 80)
    read = {seed: (tmp_path / str(seed) / "heldout.jsonl").read_text() for seed in (1, 2)}
    assert read[1] == read[2]
    rows = [json.loads(line) for line in (tmp_path / "1" / "train.jsonl").read_text().splitlines()]
    assert len({to_instance(row, "row").instance_id for row in rows}) == 400


@pytest.mark.usefixtures("environments")
async def test_demonstrations_match_the_environments_output_and_repair_the_bug() -> None:
    bug = draw(random.Random(4), held_out=True)
    environment = SweEnvironment(Grader())

    async def ran(command: str) -> str:
        seen = await environment.step(Action("", (ToolCall("bash", {"command": command}),)))
        return str(seen.messages[0]["content"])

    try:
        start = await environment.reset(Task("", metadata={"instance": bug.instance().to_row()}))
        assert start == start_of(bug)
        assert (
            await ran(look_for(bug)) == f"<returncode>0</returncode>\n<output>\n{grep_output(bug)}</output>"
        )
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


def test_the_recipe_reproduces_the_shipped_tokenizer_byte_for_byte(tmp_path: Path) -> None:
    make_tokenizer(tmp_path, demonstration, RECIPE, random.Random("0 tokenizer"))
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (MODEL / made.name).read_bytes(), made.name


def test_before_rl_the_checkpoint_copies_file_line_and_names_but_writes_a_wrong_body() -> None:
    rng, model = random.Random(6), Qwen3ForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    shares = {True: 0.0, False: 0.0}
    for _ in range(56):
        bug = draw(rng)
        kind = bug.function.kind
        for right in shares:
            whole = replace(bug, bug.line, kind.right if right else MISTAKES[kind.name])
            shares[right] += chance(model, bug, whole) / 56
    assert 0.1 < shares[True] < 0.25 and 0.5 < shares[False] < 0.8
    assert sum(shares.values()) > 0.75


@torch.no_grad()
def chance(model: Qwen3ForCausalLM, bug: Bug, change: str) -> float:
    """Returns the probability that it searches for the function, and then makes exactly this change."""
    tokenizer = load_tokenizer(str(MODEL))
    turns = [ran(look_for(bug), grep_output(bug)), ran(change, "")]
    document = encode(tokenizer, Dialogue(start_of(bug), turns), background=0.0)
    ids, written = torch.tensor([document.ids]), torch.tensor(document.weights[1:]) > 0
    log_probs = model(ids[:, :-1]).logits[0].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return float(log_probs[written].sum().exp())
