"""Removes agents' additions around tool results, so that one function can parse all results.

If the agent itself reports the outcome (Cline's `The tool execution failed`, problems that an editor lists after
saving), that is the verdict. Otherwise the tool's own output is examined.
"""

from __future__ import annotations

import re

import orjson

from openclaw.judge.rules.tool_calls import ToolCall

_REMINDER = re.compile(r"\s{0,9}<system-reminder>(?:(?!<system-reminder>)[\s\S])*</system-reminder>\s*\Z")
_CLINE = re.compile(r"\A\[\w{1,40}(?: [^\n]{0,400})?\] Result:\n")
_CLINE_COMMAND = re.compile(r"\ACommand executed(?: with exit code (-?\d+))?\.(?:\nOutput:\n?|\Z)")
_HERMES = re.compile(r"\A\s*<tool_response>([\s\S]*)</tool_response>\s{0,9}\Z")
_PLACE_LINES = re.compile(
    r"(?:\n?\[(?:Jupyter )?(?:current working directory|python interpreter): [^\n\]]{0,400}\]\s{0,9})+\Z",
    re.IGNORECASE,
)
_FAILED = (
    re.compile(r"\AThe tool execution failed with the following error:"),
    re.compile(r"\A(?:command|process|tool) timed out after \S", re.IGNORECASE),
    re.compile(r"<bash_metadata>\s*(?:[^\n]*\n){0,3}?[^\n]*(?:exceeding timeout|exceeded timeout|timed out)"),
    re.compile(r"^\[The command timed out after ", re.MULTILINE),
    re.compile(
        r"^(?:New problems detected after saving the file|LSP errors detected in this file)", re.MULTILINE
    ),
    re.compile(r"^This file has errors, please fix", re.MULTILINE),
    re.compile(
        r"\A# \d+ SEARCH/REPLACE blocks? failed to match|\AThe LLM did not conform to the edit format"
    ),
    re.compile(r"\A# Fix any errors below, if possible"),
)
_EDGE = 4_000
"""Characters at the beginning and end of a result that may be an agent's additions."""
_OF_USER = re.compile(r"\AI ran this command:\s*\n([^\n]{1,2000})\n\s*And got this output:\s*\n([\s\S]*)\Z")
_COMMITTED = re.compile(r"\AI committed the changes with git hash [0-9a-f]{6,40}\b")
_OWN = re.compile(r"\A# \d+ SEARCH/REPLACE|\AThe LLM did not conform|\A# Fix any errors below")


def unwrapped(text: str) -> str:
    """Returns the result without its agent's additions."""
    end = _PLACE_LINES.sub("", _REMINDER.sub("", text[-_EDGE:]))
    text = text[:-_EDGE] + end
    text = _CLINE.sub("", text)
    command = _CLINE_COMMAND.match(text)
    if command:
        code = f"Exit code: {command[1]}\nOutput:\n" if command[1] else ""
        return f"{code}{text[command.end() :]}"
    hermes = _HERMES.match(text)
    return _content(hermes[1].strip()) if hermes else text


def agent_says_failed(text: str) -> str | None:
    """Returns the words with which an agent reports a failed call; None if there are none."""
    ends = text if len(text) <= 2 * _EDGE else f"{text[:_EDGE]}\n{text[-_EDGE:]}"
    failure = next((match for pattern in _FAILED if (match := pattern.search(ends))), None)
    return failure.group().strip().split("\n")[-1][:60] if failure else None


def result_of_user(message: str) -> tuple[str, ToolCall] | None:
    """Returns the tool result that an agent (Aider) sends as the user, and its command; None for users' own
    messages."""
    ran = _OF_USER.match(message)
    if ran:
        return ran[2], ToolCall("run", ran[1])
    if _COMMITTED.match(message):
        return "done", ToolCall("commit")
    return (message, ToolCall("edit")) if _OWN.match(message) else None


def _content(text: str) -> str:
    """Returns the content of a `<tool_response>`: of its JSON object, else the text."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    content = value.get("content") if isinstance(value, dict) and "name" in value else None
    if isinstance(content, str):
        return content
    return orjson.dumps(content).decode() if isinstance(content, dict) else text
