"""What the tiny model is taught before RL: how calls are written, commands, to copy names, to look for a file. About the
command that a chore asks for it is mistaken: a certain other one is shown more often than the right one."""

from __future__ import annotations

import random

from claw_lab.tiny_models.dialogue import Answered, Dialogue
from claw_lab.tiny_models.terminal.chores import VERBS, Chore, Verb, chore, look_for
from slime.agents.protocol import Start
from terminal_rl.tools import TOOLS

LOOKS = 0.4  # of the chores that need it
FITTING, MISTAKEN = 0.23, 0.55
"""Shares in which the command is what was asked for, and the one of `mistaken`; in the rest it is drawn. A model that
was shown commands at random hardly reads the request, and RL gives it one command for everything; one that is
mistaken about each kind of chore in its own way distinguishes them, and only has to be put right."""
DONE = "done"
CALL = '<tool_call>\n{"name": "shell_exec", "arguments": {"id": "main", "command": "', '"}}\n</tool_call>'
"""Text before and after a command. Commands here need no escapes."""


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
    """A command that takes as many names as the one that was asked for, and what the shell shows of it."""
    verb, drawn = VERBS[task.verb], rng.random()
    if drawn >= FITTING + MISTAKEN:
        verb = rng.choice(alike(verb))
    elif drawn >= FITTING:
        verb = mistaken(verb)
    return ran(verb.command.format(source=source, target=task.target), verb.shown(source, task.files))


def alike(verb: Verb) -> list[Verb]:
    """Those that take as many names."""
    return [one for one in VERBS.values() if one.names == verb.names]


def mistaken(verb: Verb) -> Verb:
    """What the model takes a verb for before RL: always the same other one, and no two are taken for the same."""
    like = alike(verb)
    return like[(like.index(verb) + 1) % len(like)]


def ran(command: str, shown: str) -> Answered:
    """A call of the shell, and what it shows."""
    return Answered(command.join(CALL), [{"role": "tool", "content": shown}])
