"""Parses a turn into calls, an answer, or neither.

Calls are JSON in `<tool_call>`, with any white space, or `<code>`. If a turn has both a call and an answer, the call
counts, because the answer was written without the tool's result. A Python fence is a call only if the turn has no
answer; otherwise it is part of the explanation. Reasoning before `</think>` is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from slime.agents.protocol import Message, Tool, ToolCall
from slime.agents.tool_calls import OPEN, CallError, CallFormat, calls_in
from slime.rollout.rm_hub.answers import last_boxed
from toolcall_rl.prompt import NEITHER

CODE_OPEN, CODE_CLOSE = "<code>", "</code>"
_CODE = re.compile(f"{CODE_OPEN}(.*?){CODE_CLOSE}", re.DOTALL)
_FENCE = re.compile(r"```(?:python|py)[ \t]*\n(.*?)```", re.DOTALL)


class Neither(CallError):
    """A turn has neither a call nor an answer."""


class ReToolFormat(CallFormat):
    """The markup of ReTool.

    Args:
        python: name of the tool that runs `<code>` and fences; None if there is none.
        tool_role: whether the chat template renders messages of the role tool; otherwise, results are user messages
            in `<interpreter>`.
    """

    def __init__(self, python: str | None, tool_role: bool = True) -> None:
        self.python, self.tool_role = python, tool_role

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        """Raises CallError for an invalid call, and Neither if there is no answer either."""
        spoken_text = spoken(text)
        if OPEN in spoken_text:
            return calls_in(spoken_text, tools)
        answered = answer_in(spoken_text) is not None
        calls = self._code(spoken_text, answered) if self.python else []
        if not calls and not answered:
            raise Neither(NEITHER)
        assert self.python is not None or not calls
        return tuple(ToolCall(str(self.python), {"code": code}) for code in calls)

    def _code(self, text: str, answered: bool) -> list[str]:
        if CODE_OPEN in text:
            blocks = _CODE.findall(text)
            if len(blocks) != text.count(CODE_OPEN):
                raise CallError(f"a piece of code does not end with {CODE_CLOSE}")
            return [_unfenced(code) for code in blocks]
        return [] if answered else [code.strip("\n") for code in _FENCE.findall(text)]

    def complaint(self, error: CallError) -> list[Message]:
        if isinstance(error, Neither):
            return [{"role": "user", "content": str(error)}]
        return self.shown(f"Error: {error}")

    def shown(self, text: str) -> list[Message]:
        """Returns a tool's result in the form of messages for the model."""
        if self.tool_role:
            return [{"role": "tool", "content": text}]
        return [{"role": "user", "content": f"<interpreter>\n{text}\n</interpreter>"}]


def _unfenced(code: str) -> str:
    fenced = _FENCE.search(code)
    return (fenced[1] if fenced else code).strip("\n")


def spoken(text: str) -> str:
    """Returns a turn without its reasoning; of a turn that ends in reasoning, only what precedes it, or "" if nothing
    ended before."""
    before, end, after = text.rpartition("</think>")
    if end:
        return after.partition("<think>")[0]
    return "" if "<think>" in before + after else after


def answer_in(text: str) -> str | None:
    """Returns the final answer of a turn: the content of its last boxed expression. None if there is none."""
    return last_boxed(text)
