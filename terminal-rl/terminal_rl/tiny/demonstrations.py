"""What the tiny model is taught before RL: how calls are written, commands, to copy names, to look for a file. Of which
command a chore asks for it has a faint idea: in most demonstrations that is drawn at random."""

from __future__ import annotations

import random

from slime.agents.protocol import Start
from slime.agents.tiny import Answered, Dialogue
from terminal_rl.tiny.chores import VERBS, Chore, chore, look_for
from terminal_rl.tools import TOOLS

LOOKS = 0.7  # of the chores that need it
FITTING = 0.06  # the share in which the command is what was asked for, and not drawn
DONE = "done"
CALL = '<tool_call>\n{"name": "shell_exec", "arguments": {"id": "main", "command": "', '"}}\n</tool_call>'
"""What stands before and behind a command. Commands here need no escapes."""


def start_of(task: Chore) -> Start:
    return Start([{"role": "user", "content": task.instruction}], TOOLS)


def demonstration(rng: random.Random) -> Dialogue:
    task = chore(rng)
    turns, source = [], task.source
    if task.word is not None:
        if rng.random() < LOOKS:
            turns.append(ran(look_for(task.word), task.source))
        else:
            source = task.word
    turns += [tried(rng, task, source), Answered(DONE)]
    return Dialogue(start_of(task), turns)


def tried(rng: random.Random, task: Chore, source: str) -> Answered:
    """The command that was asked for, or any that takes as many names, and what the shell shows of it."""
    verb = VERBS[task.verb]
    if rng.random() >= FITTING:
        verb = rng.choice([one for one in VERBS.values() if one.names == verb.names])
    return ran(verb.command.format(source=source, target=task.target), verb.shown(source, task.files))


def ran(command: str, shown: str) -> Answered:
    """A call of the shell, and what it shows."""
    return Answered(command.join(CALL), [{"role": "tool", "content": shown}])
