"""Converts ReTool's conversations for supervised fine-tuning to the exact form of an episode.

In the published data, an answer contains both its code and the interpreter's results, so a model would learn to
invent results. Here they are split into separate messages: calls in `<tool_call>`, and results as tool messages,
which are not trained on.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from slime.agents.protocol import Message, Task
from slime.agents.python_tool import PYTHON
from slime.errors import DataError
from toolcall_rl.data.problems import Kept
from toolcall_rl.prompt import first_messages

_RUN = re.compile(r"<code>(.*?)</code>\s*<interpreter>(.*?)</interpreter>", re.DOTALL)
_FENCE = re.compile(r"^\s*```(?:python|py)?[ \t]*\n(.*?)\n?```\s*$", re.DOTALL)
QUESTION = "*user question:*"
"""The end of ReTool's instructions before a problem, which teach `<code>`; they are replaced by the system
message."""
ROLES = {"human": "user", "gpt": "assistant"}


def conversations(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Kept:
    """Converts rows {"messages", "tools"}; a conversation with unclosed markup is skipped and counted.

    Raises:
        DataError: a row has no messages; the error names the row.
    """
    kept, tools = Kept(left_out=Counter()), [PYTHON.spec()]
    for where, row in rows:
        turns = row.get("messages") or row.get("conversations")
        if not isinstance(turns, list) or not turns:
            raise DataError(f"{where}: no messages; it has {', '.join(row) or 'nothing'}")
        messages = [_message(where, one) for one in turns]
        split = [part for message in messages for part in _parts(message)]
        answers = [part["content"] for part in split if part["role"] == "assistant"]
        if any(mark in answer for answer in answers for mark in ("<interpreter>", "<code>")):
            kept.left_out["markup that does not close"] += 1
        elif split[-1]["role"] != "assistant":
            kept.left_out["no answer at the end"] += 1
        else:
            kept.rows.append({"messages": first_messages(Task(split)), "tools": tools})
    return kept


def _message(where: str, turn: object) -> Message:
    role = turn.get("role") or turn.get("from") if isinstance(turn, dict) else None
    content = turn.get("content") or turn.get("value") if isinstance(turn, dict) else None
    if not isinstance(role, str) or not isinstance(content, str):
        raise DataError(f"{where}: a message needs a role and content, got {turn!r:.80}")
    return {"role": ROLES.get(role, role), "content": content}


def _parts(message: Message) -> list[Message]:
    """Splits an answer with code and results into turns; removes instructions for other markup from a question."""
    if message["role"] != "assistant":
        return [{**message, "content": message["content"].rpartition(QUESTION)[2].strip()}]
    parts: list[Message] = []
    at = 0
    for match in _RUN.finditer(message["content"]):
        before = message["content"][at : match.start()].strip()
        parts.append({"role": "assistant", "content": f"{before}\n{call(match[1])}".lstrip()})
        parts.append({"role": "tool", "content": match[2].strip("\n")})
        at = match.end()
    rest = message["content"][at:].strip()
    return [*parts, {"role": "assistant", "content": rest}] if rest or not parts else parts


def call(code: str) -> str:
    """Formats code as a tool call that an episode can parse."""
    fenced = _FENCE.match(code)
    bare = (fenced[1] if fenced else code).strip("\n")
    return f"<tool_call>\n{json.dumps({'name': PYTHON.name, 'arguments': {'code': bare}})}\n</tool_call>"
