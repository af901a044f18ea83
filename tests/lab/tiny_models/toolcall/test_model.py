"""The shipped tiny model: it follows the format, and has memorised no long result."""

from __future__ import annotations

import json
import random

import pytest
import torch
from transformers import Qwen3ForCausalLM

from claw_lab.tiny_models.toolcall.problems import (
    HELD_OUT_DIGITS,
    Problem,
    asked,
    long_problem,
    short_problem,
)
from slime.agents.conversation import opening
from slime.agents.protocol import Start, Task
from slime.agents.python_tool import PYTHON
from slime.agents.tool_calls import CallError
from slime.rollout.tokenizer import load_tokenizer
from tests import ROOT
from toolcall_rl.prompt import first_messages
from toolcall_rl.reading import ReToolFormat, answer_in

MODEL = ROOT / "toolcall-rl" / "tiny_model"


@pytest.fixture(scope="module")
def first_turns() -> list[tuple[Problem, str]]:
    """Returns a sampled turn for each of 60 short and 60 long problems that no demonstration contains."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng, tokenizer = random.Random(5), load_tokenizer(str(MODEL))
    network = Qwen3ForCausalLM.from_pretrained(MODEL).eval()
    problems = [short_problem(rng, "+*"[n % 2]) for n in range(60)]
    problems += [
        long_problem(rng, "+*-"[n % 3], rng.choice(HELD_OUT_DIGITS), held_out=True) for n in range(60)
    ]
    found = []
    for problem in problems:
        start = Start(first_messages(Task(asked(rng, problem))), (PYTHON,))
        ids = torch.tensor([opening(tokenizer, start)])
        out = network.generate(ids, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=72)
        found.append(
            (problem, tokenizer.decode(out[0, ids.shape[1] :].tolist()).removesuffix(tokenizer.eos_token))
        )
    return found


def test_nearly_every_turn_is_a_call_or_an_answer(first_turns: list[tuple[Problem, str]]) -> None:
    def readable(text: str) -> bool:
        try:
            ReToolFormat(PYTHON.name).calls(text, [PYTHON])
        except CallError:
            return False
        return True

    assert sum(readable(text) for _, text in first_turns) > 0.9 * len(first_turns)


def test_the_model_answers_short_but_not_long_calculations(first_turns: list[tuple[Problem, str]]) -> None:
    right: dict[bool, list[bool]] = {True: [], False: []}
    for problem, text in first_turns:
        if (answer := answer_in(text)) is not None:
            right[problem.by_heart].append(answer == str(problem.result))
    assert sum(right[True]) > 0.7 * len(right[True]) and sum(right[False]) < 0.1 * len(right[False])


def test_the_model_calls_python_sometimes_regardless_of_need(
    first_turns: list[tuple[Problem, str]],
) -> None:
    called = {short: [] for short in (True, False)}  # type: dict[bool, list[bool]]
    for problem, text in first_turns:
        called[problem.by_heart].append("<tool_call>" in text)
    for calls in called.values():
        assert 0.1 < sum(calls) / len(calls) < 0.55


def test_the_checkpoint_is_small_and_its_template_describes_the_tool() -> None:
    assert sum(file.stat().st_size for file in MODEL.iterdir()) < 5 << 20
    assert json.loads((MODEL / "config.json").read_text())["model_type"] == "qwen3"
