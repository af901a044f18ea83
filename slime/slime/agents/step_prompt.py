"""The prompt of a step judge, and the parser of its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from slime.agents.protocol import Message, Step, Task
from slime.rollout.rm_hub.answers import last_boxed

StepPrompt = Callable[[Task, Sequence[Step]], "list[Message] | None"]
"""Returns the messages that ask about the last of the steps so far; None: do not judge this step."""

MAX_CHARACTERS = 2000
"""Maximum characters of one text of the judged step; texts of earlier steps have a quarter."""
_RULE = (
    "You judge one step of an agent that works on a task in several steps. A step is good (1) if its action is valid, "
    "serves the task, and what came back shows that it brought the agent forward. Else it is bad (-1). Judge this step "
    "alone, do not go on with the task. Give your reason in a few sentences and end with \\boxed{1} or \\boxed{-1}."
)


def step_prompt(task: Task, steps: Sequence[Step]) -> list[Message]:
    """Returns a prompt for any domain: the task, the first two and the last two earlier steps, the step and its
    observation."""
    *before, now = steps
    places = sorted({*range(len(before))[:2], *range(len(before))[-2:]})
    parts = [f"# Task\n{_task(task)}"]
    parts += [f"# Step {place + 1}\n{_step_text(before[place], MAX_CHARACTERS // 4)}" for place in places]
    parts.append(f"# The step to judge: step {len(steps)}\n{_step_text(now, MAX_CHARACTERS)}")
    return [{"role": "system", "content": _RULE}, {"role": "user", "content": "\n\n".join(parts)}]


def _task(task: Task) -> str:
    if isinstance(task.prompt, str):
        return shortened(task.prompt, 2 * MAX_CHARACTERS)
    lines = [f"{message.get('role')}: {message.get('content')}" for message in task.prompt]
    return shortened("\n".join(lines), 2 * MAX_CHARACTERS)


def _step_text(step: Step, most: int) -> str:
    calls = [f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})" for call in step.calls]
    parts = [f"The agent wrote:\n{shortened(step.text, most)}"]
    parts += [f"It called:\n{shortened(chr(10).join(calls), most)}"] if calls else []
    parts += [f"The call could not be made: {step.error}"] if step.error else []
    shown = "\n".join(str(message.get("content")) for message in step.shown)
    parts += (
        [f"What came back:\n{shortened(shown, most)}"]
        if shown
        else ["Nothing came back: it was the last step."]
    )
    return "\n".join(parts)


def shortened(text: str, most: int) -> str:
    """Returns beginning and end of a long text, and the length of the omitted middle."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def read_vote(text: str) -> int | None:
    """Returns 1 or -1 from the last \\boxed{...} of a reply; None for anything else there."""
    boxed = last_boxed(text)
    try:
        value = float(boxed or "")
    except ValueError:
        return None
    return int(value) if value in (1.0, -1.0) else None
