"""Demonstrations for the tiny model before RL: the format, sums of one digit, and occasional calls of Python.

Whether a demonstration calls Python is random, and a third of the code is wrong; results of long problems without a
call are invented. So the model can use the tool and does not know when it should.
"""

from __future__ import annotations

import json
import random

from claw_lab.tiny_models.dialogue import Answered, Dialogue
from claw_lab.tiny_models.toolcall.problems import (
    DEMONSTRATED_DIGITS,
    TRAINED,
    UNSEEN,
    Problem,
    asked,
    long_problem,
    short_problem,
)
from slime.agents.protocol import Message, Start, Task
from slime.agents.python_tool import PYTHON
from toolcall_rl.prompt import first_messages

CALLS = 0.32
NEVER_CLOSED = "Error: line 1: SyntaxError: '(' was never closed"


def demonstration(rng: random.Random) -> Dialogue:
    operation = rng.choice((*TRAINED, UNSEEN))
    digits = rng.choice(DEMONSTRATED_DIGITS)
    problem = short_problem(rng, operation) if rng.random() < 0.4 else long_problem(rng, operation, digits)
    start = Start(first_messages(Task(asked(rng, problem))), (PYTHON,))
    if rng.random() >= CALLS:
        known = problem.by_heart and rng.random() < 0.97
        return Dialogue(start, [Answered(answer(problem.result if known else guess(rng, problem)))])
    return Dialogue(start, with_python(rng, problem))


def with_python(rng: random.Random, problem: Problem) -> list[Answered]:
    """Returns one call or two, then their result, sometimes another number."""
    turns: list[Answered] = []
    for _ in range(2):
        code, shown = snippet(rng, problem)
        turns.append(Answered(call(code), result(shown)))
        if shown != NEVER_CLOSED or rng.random() < 0.5:
            break
    read = shown if shown != NEVER_CLOSED and rng.random() < 0.97 else guess(rng, problem)
    return [*turns, Answered(answer(read))]


def snippet(rng: random.Random, problem: Problem) -> tuple[str, str]:
    """Returns code and its output: right in 7 of 10 cases, otherwise broken, of another operation, or with another
    number."""
    drawn = rng.random()
    if drawn < 0.7:
        meant = problem
    elif drawn < 0.8:
        return f"print({problem.text}", NEVER_CLOSED
    elif drawn < 0.9:
        others = [one for one in (*TRAINED, UNSEEN) if one != problem.operation]
        meant = Problem(problem.first, rng.choice(others), problem.second)
    else:
        meant = Problem(same_length(rng, problem.first), problem.operation, problem.second)
    return f"print({meant.text})", str(meant.result)


def same_length(rng: random.Random, number: int) -> int:
    """Returns a number with as many digits."""
    digits = len(str(abs(number)))
    return rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)


def guess(rng: random.Random, problem: Problem) -> int:
    return same_length(rng, problem.result)


def answer(value: object) -> str:
    return f"Answer: \\boxed{{{value}}}"


def call(code: str) -> str:
    made = json.dumps({"name": PYTHON.name, "arguments": {"code": code}})
    return f"<tool_call>\n{made}\n</tool_call>"


def result(shown: str) -> list[Message]:
    return [{"role": "tool", "content": shown}]
