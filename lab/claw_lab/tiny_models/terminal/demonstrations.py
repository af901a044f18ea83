"""Demonstrations for the tiny model before RL: to write calls and commands, to copy names, to look for a file. The
demonstrations mostly run a wrong command: a fixed other one is shown more often than the requested one."""

from __future__ import annotations

import random

from claw_lab.tiny_models.dialogue import Answered, Dialogue
from claw_lab.tiny_models.terminal.chores import VERBS, Chore, Verb, chore, look_for
from slime.agents.protocol import Start
from terminal_rl.tools import TOOLS

LOOKS = 0.4  # of the chores that need it
FITTING, MISTAKEN = 0.23, 0.55
"""Shares of demonstrations with the requested command, and with the one of `mistaken`; the rest use random commands.
A model trained on random commands hardly reads the request, and RL teaches it one command for everything; a model
with a fixed mistake for each kind of chore distinguishes them, and RL only has to correct it."""
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
    """Returns a command with as many names as the requested one, and the shell's output."""
    verb, drawn = VERBS[task.verb], rng.random()
    if drawn >= FITTING + MISTAKEN:
        verb = rng.choice(alike(verb))
    elif drawn >= FITTING:
        verb = mistaken(verb)
    return ran(verb.command.format(source=source, target=task.target), verb.shown(source, task.files))


def alike(verb: Verb) -> list[Verb]:
    """Returns the verbs with as many names."""
    return [one for one in VERBS.values() if one.names == verb.names]


def mistaken(verb: Verb) -> Verb:
    """Returns the verb that the model confuses with a verb before RL: always the same other one, a different one for
    each."""
    like = alike(verb)
    return like[(like.index(verb) + 1) % len(like)]


def ran(command: str, shown: str) -> Answered:
    """Returns a call of the shell with its output."""
    return Answered(command.join(CALL), [{"role": "tool", "content": shown}])
