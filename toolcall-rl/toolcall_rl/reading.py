"""Parses a turn: calls, an answer, or neither.

Calls are `<tool_call>` with JSON, however it is laid out, or `<code>`. A turn with a call and an answer makes the call:
what it answers was written before the tool did. A Python fence is a call if the turn has no answer; otherwise it only
shows how the answer was found. Thoughts before `</think>` are neither.
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
    """A turn that calls nothing and answers nothing."""


class ReToolFormat(CallFormat):
    """The markup of ReTool.

    Args:
        python: name of the tool that `<code>` and fences go to; None if there is none.
        tool_role: whether the model's template shows messages of the role tool; otherwise the user shows them, in
            `<interpreter>`.
    """

    def __init__(self, python: str | None, tool_role: bool = True) -> None:
        self.python, self.tool_role = python, tool_role

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        """Raises CallError for a call that cannot be made, and Neither if there is no answer."""
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
        """Returns a tool's result, as the model sees it."""
        if self.tool_role:
            return [{"role": "tool", "content": text}]
        return [{"role": "user", "content": f"<interpreter>\n{text}\n</interpreter>"}]


def _unfenced(code: str) -> str:
    fenced = _FENCE.search(code)
    return (fenced[1] if fenced else code).strip("\n")


def spoken(text: str) -> str:
    """Returns a turn without its thoughts; nothing of it if they do not end."""
    before, end, after = text.rpartition("</think>")
    if end:
        return after
    return "" if "<think>" in before + after else after


def answer_in(text: str) -> str | None:
    """Returns the final answer of a turn: the content of its last box. None without one."""
    return last_boxed(text)
