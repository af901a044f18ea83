"""What a judge model is asked, and how its reply is read. The rules backend needs neither."""

from __future__ import annotations

import re

from openclaw.judge.questions import JudgeQuestion
from openclaw.records import Message, Vote

EVAL_PROMPT_NAME = "eval-v1"

_EVAL_SYSTEM = r"""You are a process reward model. You see one reply of an assistant and the state that came
right after it, and you decide whether the reply did what its user wanted. Judge by what happened next, not by
how the reply looks.

The next state has a role:
- user: the person answered. They are content and move on, or correct, ask for a change, or ask again.
- tool: the output of a tool that ran because the assistant called it.

Scores:
 1  the reply served its purpose: the person thanks, accepts or goes on; the tool call worked.
-1  the reply was wrong, incomplete or unwanted: the person corrects it, wants it redone or changed, or puts
    the same request in other words; the tool call failed because of what the assistant did. A wish for a
    change is a complaint about this reply, not a new task.
 0  the next state does not say, or says too little.

Think step by step, then end with the score in a box: \boxed{1}, \boxed{-1} or \boxed{0}."""

_EVAL_USER = r"""## Reply of the assistant
{response}

## Next state (role: {role})
{next_state}

First say what the next state is: (a) progress, (b) a correction, change or repetition, or (c) unclear. Then
give the score in \boxed{{}}."""

_BOXED = re.compile(r"\\boxed\{\s*([+-]?\d)\s*\}")


def eval_messages(question: JudgeQuestion) -> list[Message]:
    """The chat messages that ask for one eval vote."""
    asked = _EVAL_USER.format(response=question.response, role=question.role, next_state=question.next_text)
    return [{"role": "system", "content": _EVAL_SYSTEM}, {"role": "user", "content": asked}]


def read_eval_vote(reply: str) -> Vote:
    """The last boxed digit of a judge's reply; no box, or another number than 1, -1, 0, is no valid vote."""
    boxed = _BOXED.findall(reply)
    score = int(boxed[-1]) if boxed else None
    return Vote(score=score if score in (1, -1, 0) else None, text=reply)
