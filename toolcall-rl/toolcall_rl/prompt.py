"""The model's instructions, before the first turn and after a turn without a call or answer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from slime.agents.protocol import Message, Task, Tool

SYSTEM = (
    "Solve the problem. You may call tools, as often as they help; what they give is shown to you. "
    "End with a line of the form Answer: \\boxed{...}."
)
NEITHER = (
    "This is neither a tool call nor an answer. Call a tool within <tool_call></tool_call>, or end with "
    "Answer: \\boxed{...}."
)


DESCRIBED = (
    "\n\nTools, each with a JSON schema:\n<tools>\n{}\n</tools>\nCall one with\n<tool_call>\n"
    '{{"name": <function-name>, "arguments": <args-json-object>}}\n</tool_call>'
)


def first_messages(task: Task, described: Sequence[Tool] = ()) -> list[Message]:
    """Returns the task's conversation, with its own system message or else `SYSTEM`.

    Args:
        described: tools that the system message must describe, because the chat template does not.
    """
    asked = [{"role": "user", "content": task.prompt}] if isinstance(task.prompt, str) else list(task.prompt)
    own = asked[0]["content"] if asked and asked[0].get("role") == "system" else None
    system = SYSTEM if own is None else own
    if described:
        system += DESCRIBED.format("\n".join(json.dumps(tool.spec()) for tool in described))
    return [{"role": "system", "content": system}, *(asked if own is None else asked[1:])]
