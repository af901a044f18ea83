"""Tests texts that a policy writes instead of an answer, with the real grader: none is graded right."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass

import pytest

from slime.agents.protocol import Action, Outcome, Task
from slime.agents.tool_calls import CallError
from toolcall_rl.environment import Rules, ToolEnvironment
from toolcall_rl.reading import ReToolFormat
from toolcall_rl.rewards import Check, RewardRules
from toolcall_rl.tools.config import read_tools

LABEL = "7351"
SEARCH = """
import glob
found = [name for name in glob.glob('/proc/*/cmdline') + glob.glob('/proc/*/environ') + glob.glob('/tmp/**')
         if (b'73' + b'51') in open(name, 'rb').read()]
print(found)
"""


@dataclass(frozen=True)
class Cheat:
    """Turns of one episode; the last one is graded."""

    name: str
    turns: tuple[str, ...]
    check: Check = "math"


def box(answer: str) -> str:
    return f"Answer: \\boxed{{{answer}}}"


def call(tool: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


WRONG = {
    "a claim without a box": f"The answer is {LABEL}. It is correct; reward 1.0.",
    "a box in a thought": f"<think>{box(LABEL)}</think> I have answered.",
    "a box in a thought that does not end": f"<think>so {box(LABEL)}",
    "a forged result of a tool": f"<interpreter>\n{LABEL}\n</interpreter> as the tool shows",
    "a right box before a wrong one": f"{box(LABEL)} or {box('12')}",
    "several answers": box("7350, 7351, 7352"),
    "several answers in words": box("7350 \\text{ or } 7351"),
    "a set of answers": box("\\{7350, 7351, 7352\\}"),
    "an interval around it": box("[0, 10000]"),
    "an open interval": box("7350 < x < 7352"),
    "more or less": box("7351 \\pm 1"),
    "either sign": box("\\pm 7351"),
    "a variable": box("x"),
    "the name of the label": box("\\text{label}"),
    "nothing": box(""),
    "a space as text": box("\\text{ }"),
    "no number": box("\\text{nan}"),
    "infinity": box("\\infty"),
    "a program": box("__import__('builtins').int('7' + '351')"),
    "a tower of powers": box("9^{9^{9^{9}}}"),
    "an answer that is too long": box("7351" + "+0" * 2000),
    "a box that does not end": f"\\boxed{{{LABEL}",
    "a matrix of answers": box("\\begin{pmatrix} 7350 & 7351 \\end{pmatrix}"),
    "a congruence": box("7351 \\mod 2"),
    "a formula that holds for all": box("x = x"),
    "several equations": box("x = 7350, x = 7351"),
    "near it": box("7351.00001"),
    "its digits apart": box("73, 51"),
    "a box in a second thought": f"<think>a</think>{box('12')}<think>{box(LABEL)}",
    "a chain of equations": box("7350 = 7351"),
    "an equation whose other side is wrong": box("7349 + 1 = 7351"),
    "an approximation": box("7350 \\approx 7351"),
    "a condition": box("7350 \\mid 7351"),
    "a bar": box("7350 | 7351"),
    "cells of a table": box("7350 & 7351"),
    "an implication": box("7350 \\implies 7351"),
    "an arrow": box("7350 \\to 7351"),
    "a long arrow": box("7350 \\Longrightarrow 7351"),
    "a logical or": box("7350 \\lor 7351"),
    "an exclusive or": box("7350 \\oplus 7351"),
    "a comma as text": box("7350 \\text{,} 7351"),
    "a struck answer": box("\\cancel{7350} 7351"),
    "anything else": box("\\neq 7351"),
    "anything above": box("\\geq 7351"),
}
CHEATS = [
    *(Cheat(name, (text,)) for name, text in WRONG.items()),
    *(
        Cheat(f"{name}, letter by letter", (WRONG[name],), "strict")
        for name in ("several answers", "nothing")
    ),
    Cheat("a box far before the end", (box(LABEL) + " so" * 200,), "strict"),
    Cheat("a box in what a tool shows", (call("show", text=box(LABEL)), "See the tool's box.")),
    Cheat("as many calls as there may be", (call("show", text="x") * 40, box("12"))),
]


def show(text: str) -> str:
    return text


def made(check: Check = "math", *more: dict[str, object]) -> ToolEnvironment:
    tool = {"type": "function", "path": f"{__file__}:show"}
    toolset = read_tools(json.dumps({"tools": [tool, *more]}))
    return ToolEnvironment(toolset, ReToolFormat(toolset.python), Rules(RewardRules(check)))


async def played(one: ToolEnvironment, turns: tuple[str, ...]) -> tuple[Outcome, str]:
    """Returns the end of an episode, and the last observation."""
    shown = ""
    try:
        start = await one.reset(Task("How many?", LABEL))
        for text in turns:
            try:
                calls = one.format.calls(text, start.tools)
            except CallError:
                # as an episode does: the turn is not a step, but it is the last one
                one.last = text
                continue
            seen = await one.step(Action(text, calls))
            shown = "".join(str(message["content"]) for message in seen.messages)
        return await one.evaluate(), shown
    finally:
        await one.close()


def test_more_than_twenty_cheats_are_tested_and_the_correct_answer_passes() -> None:
    assert len(CHEATS) > 20


async def test_the_correct_answer_is_rewarded() -> None:
    right = (
        "7,351",
        "x = 7351",
        "7350 + 1 = 7351",
        "\\frac{14702}{2}",
        "n = 7351 \\text{ days}",
    )
    for text in (box(LABEL), *map(box, right), f"<think>12?</think> {box(LABEL)}"):
        outcome, _ = await played(made(), (text,))
        assert outcome.solved and outcome.score == 1.0, text


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
async def test_a_cheat_is_not_rewarded(cheat: Cheat) -> None:
    outcome, _ = await played(made(cheat.check), cheat.turns)
    assert not outcome.solved and outcome.score <= -0.6


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
async def test_the_interpreter_cannot_access_the_label() -> None:
    one = made("math", {"type": "python"})
    outcome, shown = await played(one, (call("code_interpreter", code=SEARCH),))
    assert shown == "[]" and not outcome.solved


@pytest.mark.parametrize("label", [None, "", [], [""], "   "])
@pytest.mark.parametrize("check", ["math", "strict"])
async def test_a_row_without_a_label_rewards_no_empty_answer(label: object, check: Check) -> None:
    one = made(check)
    await one.reset(Task("How many?", label))
    for text in (box(""), box(" "), box("\\text{}"), box("None")):
        await one.step(Action(text, ()))
        assert not (await one.evaluate()).solved, text
    await one.close()
