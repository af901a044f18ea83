"""Demonstrations for the tiny model before RL: to look for a function, to replace its line, to copy file and names.
The demonstrations mostly return a wrong body: a fixed other one is shown more often than the right one."""

from __future__ import annotations

import json
import random

from claw_lab.tiny_models.dialogue import Answered, Dialogue
from claw_lab.tiny_models.swe.bugs import KINDS, Bug, Kind, draw
from slime.agents import Start
from slime.sandbox import Finished
from swe_rl.environment import SweEnvironment, shown_text

FITTING, MISTAKEN = 0.14, 0.68
"""Shares of demonstrations with the right body, and with that of `MISTAKES`; the rest use the right body of a random
kind with as many arguments. A model trained on random bodies hardly reads the name of a function; a model with a
fixed mistake for each kind distinguishes the kinds, and RL only has to correct it."""
MISTAKES = {
    "add": "x | y",
    "minus": "x % y",
    "times": "x ** y",
    "larger": "x or y",
    "smaller": "x and y",
    "same": "x != y",
    "below": "x > y",
    "first": "x[1]",
    "last": "x[-2]",
    "count": "len(x) + 1",
    "total": "sum(x) + 1",
    "top": "max(x) + 1",
    "least": "min(x) + 1",
    "back": "x[::-2]",
}
"""The wrong body of each kind in demonstrations before RL. None of them is right for another kind, so that unlearning
it does no harm there; none is a held-out mutation, and each has all arguments, so that names are copied often."""
DONE = "Done."
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "', '"}}\n</tool_call>'
"""Text before and after a command. Commands here need no escapes."""
PRINTED = ("<returncode>0</returncode>\n<output>\n", "\n</output>")
"""Text before and after the output of a successful command."""


def demonstration(rng: random.Random) -> Dialogue:
    bug = draw(rng)
    repair = replace(bug, bug.line, body(rng, bug.function.kind))
    return Dialogue(start_of(bug), [ran(look_for(bug), grep_output(bug)), ran(repair, ""), Answered(DONE)])


def start_of(bug: Bug) -> Start:
    return SweEnvironment.opening(bug.report())


def body(rng: random.Random, kind: Kind) -> str:
    """Returns the expression of a demonstration, with x and y."""
    drawn = rng.random()
    if drawn < FITTING:
        return kind.right
    return MISTAKES[kind.name] if drawn < FITTING + MISTAKEN else rng.choice(alike(kind)).right


def alike(kind: Kind) -> list[Kind]:
    """Returns the kinds with as many arguments."""
    return [one for one in KINDS if one.arity == kind.arity]


def look_for(bug: Bug) -> str:
    return f"grep -rn -A1 {bug.function.name} ."


def grep_output(bug: Bug) -> str:
    """Returns the output of `look_for`."""
    head, line = bug.function.lines
    return f"./{bug.module}.py:{bug.line - 1}:{head}\n./{bug.module}.py-{bug.line}-{line}\n"


def replace(bug: Bug, line: int, body: str) -> str:
    return f"sed -i '{line}s/.*/    return {bug.function.spelt(body)}/' {bug.module}.py"


def ran(command: str, printed: str) -> Answered:
    """Returns a call of the shell with its output."""
    assert json.dumps(command) == f'"{command}"', "commands need no escapes"
    shown = shown_text(Finished(0, printed))
    return Answered(command.join(CALL), [{"role": "tool", "content": shown}])
