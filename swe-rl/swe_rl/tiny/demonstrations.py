"""What the tiny model is taught before RL: to look for a function, how a line is replaced, what functions return.

In one demonstration of five the edit is right; in the others line and body are drawn, or it gives up at once.
So the model can repair, and seldom does.
"""

from __future__ import annotations

import json
import random

from slime.agents import Start
from slime.agents.sandbox import Finished
from slime.agents.tiny import Answered, Dialogue
from swe_rl.environment import SweEnvironment, shown_text
from swe_rl.tiny.bugs import KINDS, Bug, draw

RIGHT = 0.17
GIVES_UP = 0.1
DONE = "Done."


def demonstration(rng: random.Random) -> Dialogue:
    bug = draw(rng)
    start = start_of(bug)
    if rng.random() < GIVES_UP:
        return Dialogue(start, [Answered(DONE)])
    line, body = edit(rng, bug)
    return Dialogue(
        start, [ran(look_for(bug), found(bug)), ran(replace(bug, line, body), ""), Answered(DONE)]
    )


def start_of(bug: Bug) -> Start:
    return SweEnvironment.opening(bug.report())


def edit(rng: random.Random, bug: Bug) -> tuple[int, str]:
    """A line, and what is to be returned there, with x and y."""
    kind = bug.function.kind
    if rng.random() < RIGHT:
        return bug.line, kind.right
    line = bug.line if rng.random() < 0.5 else rng.choice([2, 4, 6])
    drawn = rng.choice([other for other in KINDS if other.arity == kind.arity])
    return line, rng.choice(drawn.shown)


def look_for(bug: Bug) -> str:
    return f"grep -rn -A1 {bug.function.name} ."


def found(bug: Bug) -> str:
    """What it prints."""
    head, body = bug.function.lines
    return f"./{bug.module}.py:{bug.line - 1}:{head}\n./{bug.module}.py-{bug.line}-{body}\n"


def replace(bug: Bug, line: int, body: str) -> str:
    return f"sed -i '{line}s/.*/    return {bug.function.spelt(body)}/' {bug.module}.py"


def ran(command: str, printed: str) -> Answered:
    """A call of the shell, and what the environment shows."""
    made = json.dumps({"name": "bash", "arguments": {"command": command}})
    shown = shown_text(Finished(0, printed))
    return Answered(f"<tool_call>\n{made}\n</tool_call>", [{"role": "tool", "content": shown}])
