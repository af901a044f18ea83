"""Tasks of the tiny model: held-out tasks, none of whose answers is in the training data."""

from __future__ import annotations

import json
import random
from pathlib import Path

from claw_lab.tiny_models.toolcall.demonstrations import demonstration
from claw_lab.tiny_models.toolcall.make_tasks import write
from claw_lab.tiny_models.toolcall.problems import Problem
from slime.agents.python_tool import PYTHON
from slime.agents.tool_calls import calls_in
from toolcall_rl.reading import answer_in


def problem_of(text: str) -> Problem:
    first, operation, second = text.split()
    return Problem(int(first), operation, int(second))


def test_held_out_problems_are_in_no_training_task_and_no_demonstration(tmp_path: Path) -> None:
    write(tmp_path, seed=3, tasks=600, evaluated=60)
    found = {
        name: [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "heldout", "by_heart")
    }
    assert [len(found[name]) for name in ("train", "heldout", "by_heart")] == [600, 60, 20]
    for name, rows in found.items():
        for row in rows:
            problem = problem_of(row["metadata"]["task_id"])
            assert row["label"] == str(problem.result) and problem.text in row["prompt"]
            assert problem.held_out == (name == "heldout")
            assert problem.by_heart or name != "by_heart"
    operations = {name: {row["metadata"]["operation"] for row in rows} for name, rows in found.items()}
    assert operations == {"train": {"+", "*"}, "heldout": {"+", "*", "-"}, "by_heart": {"+", "*"}}
    rng = random.Random(0)
    for _ in range(500):
        asked = demonstration(rng).start.messages[-1]["content"]
        text = asked.removeprefix("What is ").removeprefix("Calculate ").rstrip("?.").removesuffix(" = ")
        assert not problem_of(text).held_out


def test_the_held_out_tasks_are_the_same_for_every_seed(tmp_path: Path) -> None:
    for seed in (1, 2):
        write(tmp_path / str(seed), seed, tasks=20, evaluated=30)
    read = [(tmp_path / str(seed) / "heldout.jsonl").read_text() for seed in (1, 2)]
    assert read[0] == read[1]


def test_demonstrations_call_at_random_and_contain_no_long_result() -> None:
    """Calls are as frequent for short problems as for long ones; without a call, only short results are correct."""
    rng = random.Random(1)
    called: dict[bool, list[bool]] = {True: [], False: []}
    right: dict[bool, list[bool]] = {True: [], False: []}
    for _ in range(3000):
        shown = demonstration(rng)
        asked = shown.start.messages[-1]["content"]
        problem = problem_of(
            asked.removeprefix("What is ").removeprefix("Calculate ").rstrip("?.").removesuffix(" = ")
        )
        calls = any(calls_in(turn.text, [PYTHON]) for turn in shown.turns)
        called[problem.by_heart].append(calls)
        if not calls:
            right[problem.by_heart].append(answer_in(shown.turns[-1].text) == str(problem.result))
    shares = {short: sum(values) / len(values) for short, values in called.items()}
    assert abs(shares[True] - shares[False]) < 0.06 and 0.26 < shares[False] < 0.38
    assert sum(right[True]) / len(right[True]) > 0.9 and sum(right[False]) / len(right[False]) < 0.01
