"""What the tiny model is taught before RL: how calls are written, commands, to copy names, to look for a file. Of which
command a chore asks for it has a faint idea: in most demonstrations that is drawn at random."""

from __future__ import annotations

import json
import random

from slime.agents.protocol import Start
from slime.agents.tiny import Answered, Dialogue
from terminal_rl.tiny.chores import VERBS, Chore, Verb, chore, look_for
from terminal_rl.tools import TOOLS

LOOKS = 0.7  # of the chores that need it
IN_ORDER = 0.7  # of two names, the share in which they are used as they were read
FITTING = 0.15
DONE = "done"


def start_of(task: Chore) -> Start:
    return Start([{"role": "user", "content": task.instruction}], TOOLS)


def demonstration(rng: random.Random, fitting: float = FITTING) -> Dialogue:
    """`fitting` is the share in which the command is what was asked for, and not drawn."""
    task = chore(rng)
    turns, source = [], task.source
    if task.word is not None:
        if rng.random() < LOOKS:
            turns.append(ran(look_for(task.word), task.source))
        else:
            source = task.word
    asked = VERBS[task.verb] if rng.random() < fitting else None
    turns += [ran(command(rng, asked, source, task.target), "[no output]"), Answered(DONE)]
    return Dialogue(start_of(task), turns)


def command(rng: random.Random, verb: Verb | None, source: str, target: str) -> str:
    """That of the verb; without one, any that takes as many names."""
    names = [name for name in (source, target) if name]
    verb = verb or rng.choice([one for one in VERBS.values() if one.names == len(names)])
    if rng.random() >= IN_ORDER:
        names.reverse()
    return verb.command.format(source=names[0], target=names[-1])


def ran(command: str, shown: str) -> Answered:
    """A call of the shell, and what it shows."""
    made = json.dumps({"name": "shell_exec", "arguments": {"id": "main", "command": command}})
    return Answered(f"<tool_call>\n{made}\n</tool_call>", [{"role": "tool", "content": shown}])
