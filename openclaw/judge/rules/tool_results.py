"""Detects whether a tool call worked. 1 and -1 need evidence: an exit code, a failure reported by the program itself,
or a success.

exit code 0        1, unless the output proves a failure that the code hides; 0 if a search found nothing
another code       -1; 0 for code 1 of a program that means "no" by it (grep, diff, test)
no code            -1 for a recognised failure, 1 for a recognised success or for text that a call was to show
anything else      0

An exit code counts only where an agent writes it; elsewhere it is the program's output. OpenClaw writes `(Command
exited with code 1)` last, or a JSON error. Claude Code writes `Exit code 1` first, Codex a head of lines that ends in
`Output:`. Others write JSON fields, tags, or a sentence in brackets. A program's own error counts at the beginning of
a line and in the program's form. Other text counts only if a report begins there or the text is short, because a
document that a tool has read may mention errors too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from openclaw.judge.rules.renderings import agent_says_failed, unwrapped
from openclaw.judge.rules.tool_calls import ToolCall
from openclaw.judge.rules.wordings import TOOLS

Verdict = tuple[int, str]

TOOL_ROLES = frozenset({"tool", "function"})
"""Roles of messages with tool results."""
_BAD_STATUS = frozenset(
    {"error", "failed", "failure", "timeout", "denied", "forbidden", "cancelled", "killed", "unauthorized"}
)
_GOOD_STATUS = frozenset(
    {
        "ok",
        "success",
        "succeeded",
        "completed",
        "done",
        "sent",
        "created",
        "updated",
        "deleted",
        "saved",
        "up",
    }
)
_ERROR_CODES = ("errcode", "errno")
_APPLICATION_CODE, _SAID_WITH_IT = "code", ("msg", "message", "error_msg")
"""An object with `code` and one of these fields has an application's own error code; 0 and 2xx are no errors."""
_ERROR_REPLY = frozenset({"error", "similar_files", "suggestion", "hint", "path", "success", "message"})
"""Fields in the reply of a tool that could not display something."""
_WRITTEN = ("bytes_written", "files_modified", "replacements")
"""Fields in which tools report what they have written."""
_COUNTS, _FOUND = ("total_count", "total", "count", "num_results"), ("results", "matches", "files")
"""Fields in which searches report their results."""
_DETAIL = "detail"
"""The only field in error responses of FastAPI and Django."""
_FAILED_TEXT = re.compile(r"(?i)\s*(?:error|failed|failure|exception|错误|失败)\s*[:：]")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_SHELL_HEAD = re.compile(r"(?:Command|Directory|Output|Stdout): ")
_SHELL_END = re.compile(r"(-?\d+|\(none\))(?:\n[A-Z][\w ]{,40}: [^\n]*)*\s*\Z")
_SIGNAL = re.compile(r"\nSignal: ([1-9]\d?)(?=\n|\Z)")
"""Signal that ended a command; shells report 128 plus its number."""
_SHELL_NOTHING = ("(none)", "(empty)")
"""Shell reports of Gemini CLI and Qwen Code: their beginning, the text after `Exit Code: `, and the marks of empty
output."""
_HTTP_CODES = ("status", "statusCode", "status_code", "http_status", "code")
_NESTED = ("result", "details", "data", "output")
_UNKNOWN = (0, "no evidence in the tool result")
_LINE = re.compile(
    r"""^[\[(<*\s]*(?:error:\s*)?(?:(?:the\s+)?(?:command|process|program|script|task|shell|bash|job|tool)\s+)?(?:
        (?:exited|finished|completed|terminated|failed|ended|returned)\s+with\s+
            (?:an?\s+)?(?:non-?zero\s+)?(?:exit\s+|return\s+)?(?:code|status)
      | (?:exit|return)[ _-]?(?:code|status|value)?
      | (?:退出|返回|错误)(?:代?码|状态|值)
    )\s*(?:of|is|was|[:=：为])?\s*(-?\d+)\s*(?:[(:,].*)?[\])>.*\s]*$""",
    re.IGNORECASE | re.VERBOSE,
)
_TAG = re.compile(
    r"^\s*<(returncode|return_code|exit_?code|exit_?status)>\s*(-?\d+)\s*</\1>\s*", re.IGNORECASE
)
_OUTPUT_TAG = re.compile(r"^\s*<(output|stdout|result)>\n?(.*?)\n?</\1>\s*", re.DOTALL | re.IGNORECASE)
_HEAD_END = re.compile(r"^(?:output|stdout)\s*:\s*$", re.IGNORECASE)
_HEAD_LINES = 8
_NOTHING = re.compile(
    r"^[\[(<]?\s*(?:(?:bash|command|tool|process) (?:completed|ran|finished|executed)[\w ]*(?:with|and) )?"
    r"(?:no output|empty output|\(?no output\)?|no content)\s*[\])>.]*$",
    re.IGNORECASE,
)
_CODES = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "exitStatus")
_BODIES = ("output", "stdout", "stderr", "aggregated", "content", "text", "error")
_HOLDERS = ("metadata", "details", "result", "data", "output")
_EDGE = 20_000
_END_LENGTH = 10_000
"""Characters examined at the beginning and end of a long result."""
_SHORT_LENGTH, _SHORT_LINES = 400, 3
"""Most characters and lines of a text that can be a report as a whole."""
_DOCUMENT = re.compile(r"\s*(?:#|```|<[!a-z]|\d+[.)] |[-*] |\||def |class |import |from |function |//)")
_HARMLESS = (
    r"(?!\s*(?:warning|note|info|hint|debug|nothing to be done|entering|leaving|done|ok|using|running|listening"
    r"|started|ready|serving|version|usage)\b)"
)
_TALKATIVE = frozenset({"make", "npm", "file", "wc"})
"""Programs that print their name in other messages than failures, too."""
_HELPERS = ("bash", "gzip", "xargs", "[mg]awk")
_SUMMARY_LINES = 15


def read_tool_results(texts: list[str], calls: list[ToolCall]) -> Verdict:
    """Returns one verdict on all results of a turn: failure if one failed, success if all succeeded."""
    paired = calls if len(calls) == len(texts) else [ToolCall()] * len(texts)
    verdicts = [read_tool_result(text, call) for text, call in zip(texts, paired, strict=True)]
    for sign in (-1, 0):
        verdict_of_sign = next((verdict for verdict in verdicts if verdict[0] == sign), None)
        if verdict_of_sign:
            return verdict_of_sign
    return verdicts[0]


def read_tool_result(text: str, call: ToolCall) -> Verdict:
    """Returns (score, reason) of one result."""
    text = unwrapped(_COLOURS.sub("", text))
    report = read_report(text)
    failure = agent_says_failed(text) if report.code is None and not call.shows_texts else None
    if failure:
        return -1, f"tool failure: {failure}"
    code = report.code
    if code is None and report.value is None and call.says_every_failure:
        code = None if TOOLS["unfinished"].search(report.body) else 0
    if code is None:
        return _without_code(report, call)
    return _with_zero(report.body, call) if code == 0 else _with_code(code, report.body, call)


def _with_code(code: int, body: str, call: ToolCall) -> Verdict:
    if call.asks and code == 1 and not own_failure(body, _programs(call)):
        return 0, "exit code 1 is an answer"
    return -1, f"tool failure: exit code {code}"


def _with_zero(body: str, call: ToolCall) -> Verdict:
    failure = own_failure(body, _programs(call)) if call.hides_failures or call.displays else None
    if not call.displays:
        value = as_object(body)
        failure = failure or (object_failed(value) if value else None) or summary_failed(body)
        if call.hides_failures:
            failure = failure or text_failed(body)
    if failure:
        return -1, f"tool failure: {failure}"
    if not body and call.asks:
        return 0, "nothing found"
    return 1, "tool success: exit code 0"


def _without_code(report: Report, call: ToolCall) -> Verdict:
    body = report.body
    if not body:
        return 0, "no output"
    if call.displays:
        return _shown(report, call)
    if report.value is not None:
        failure = object_failed(report.value)
        success = None if failure else object_succeeded(report.value)
    else:
        failure = own_failure(body, _programs(call)) or text_failed(body)
        success = None if failure else text_succeeded(body)
    if failure:
        return -1, f"tool failure: {failure}"
    if success is None and call.computes:
        success = "a computed result"
    return (1, f"tool success: {success}") if success else _UNKNOWN


def _shown(report: Report, call: ToolCall) -> Verdict:
    """Judges a call that displays something: its output is that content, unless the program itself reports an
    error."""
    body, value = report.body, report.value
    if value is not None and value.get("status") == "error":
        return -1, "tool failure: status is error"
    if value is not None and not call.command and value.keys() <= _ERROR_REPLY and value.get("error"):
        return -1, "tool failure: the result is only an error"
    if value is not None and not call.command and _finds_nothing(value):
        return 0, "nothing found"
    failure = own_failure(body, _programs(call))
    if failure is None and not call.shows_texts and (is_report(body) or call.command):
        first = body.split("\n", 1)[0]
        opening = TOOLS["opening_failure"].match(first)
        failure = f"error text: {opening.group()[:60]}" if opening else None
    if failure:
        return -1, f"tool failure: {failure}"
    if TOOLS["nothing_found"].search(body) and is_report(body):
        return 0, "nothing found"
    return 1, "tool success: no sign of a failure"


def _finds_nothing(value: dict[str, Any]) -> bool:
    """Returns whether a search reports no results."""
    return any(value.get(name) == 0 and type(value[name]) is int for name in _COUNTS) or any(
        value.get(name) == [] for name in _FOUND
    )


def object_failed(value: dict[str, Any]) -> str | None:
    """Returns the reason if a JSON object reports a failure, else None."""
    for name in ("error", "errors"):
        if value.get(name):
            return f"{name} in the result"
    for name in ("isError", "is_error"):
        if value.get(name) is True:
            return f"{name} is true"
    for name in ("ok", "success"):
        if value.get(name) is False:
            return f"{name} is false"
    for name in (*_ERROR_CODES, *_HTTP_CODES):
        code = value.get(name)
        if isinstance(code, int) and (400 <= code < 600 or (name in _ERROR_CODES and code)):
            return f"{name} is {code}"
    own = value.get(_APPLICATION_CODE)
    if type(own) is int and own and not 200 <= own < 300 and any(name in value for name in _SAID_WITH_IT):
        return f"{_APPLICATION_CODE} is {own}"
    if value.keys() == {_DETAIL} and value[_DETAIL]:
        return f"the result has only the field {_DETAIL}"
    field = next((name for name in _NESTED if isinstance(value.get(name), str)), None)
    if field is not None and _FAILED_TEXT.match(value[field]):
        return f"{field} is an error text"
    status = value.get("status")
    if isinstance(status, str) and status.lower() in _BAD_STATUS:
        return f"status is {status.lower()}"
    inner = (value[name] for name in _NESTED if isinstance(value.get(name), dict))
    return next((why for why in map(object_failed, inner) if why), None)


def object_succeeded(value: dict[str, Any]) -> str | None:
    """Returns the evidence of success in a JSON object that reports no failure; None if there is none."""
    for name in ("ok", "success", "healthy"):
        if value.get(name) is True:
            return f"{name} is true"
    for name in ("error", "errors"):
        if name in value:
            return f"no {name}"
    for name in (*_ERROR_CODES, *_HTTP_CODES):
        code = value.get(name)
        if isinstance(code, int) and (code == 0 or 200 <= code < 300):
            return f"{name} is {code}"
    if written := next((name for name in _WRITTEN if value.get(name)), None):
        return f"{written} in the result"
    status = value.get("status")
    if isinstance(status, str) and status.lower() in _GOOD_STATUS:
        return f"status is {status.lower()}"
    return next((f"{name} in the result" for name in ("result", "data") if value.get(name)), None)


def _programs(call: ToolCall) -> list[str]:
    return [step.program for step in call.steps]


@dataclass(frozen=True)
class Report:
    """code: the exit code, None if the result names none; body: what the program printed, empty for nothing;
    value: the JSON object that the result is, unless it is one that only wraps an output."""

    code: int | None
    body: str
    value: dict[str, Any] | None = None


def read_report(text: str) -> Report:
    text = _COLOURS.sub("", text)
    if (shell := _of_shell(text)) is not None:
        return shell
    value = as_object(text)
    if value is None:
        return _of_text(text)
    code = _code_in(value)
    if code is None and value.get("status") == "error" and isinstance(value.get("error"), str):
        inner = _of_text(value["error"])
        return Report(inner.code or None, inner.body, None if inner.code else value)
    if code is None:
        return Report(None, text, value)
    parts = [value[name] for name in _BODIES if isinstance(value.get(name), str)]
    inner_parts = [
        inner[name]
        for inner in (value.get(key) for key in _HOLDERS)
        if isinstance(inner, dict)
        for name in _BODIES
        if isinstance(inner.get(name), str)
    ]
    return Report(code, _without_placeholder("\n".join(parts + inner_parts)))


def _of_shell(text: str) -> Report | None:
    """Parses a report with the fields Command, Output, Error and Exit Code (Gemini CLI, Qwen Code)."""
    if not _SHELL_HEAD.match(text):
        return None
    lines = f"\n{text}"
    code_at = lines.rfind("\nExit Code: ")
    error_at = max(lines.rfind(f"\n{name}: ", 0, max(code_at, 0)) for name in ("Error", "Stderr"))
    starts = [at for name in ("Output", "Stdout") if 0 <= (at := lines.find(f"\n{name}: ")) < error_at]
    end = _SHELL_END.match(lines, code_at + len("\nExit Code: ")) if code_at >= 0 else None
    if not starts or end is None:
        return None
    parts = (lines[min(starts) : error_at], lines[error_at:code_at])
    printed = [part.partition(": ")[2].strip() for part in parts]
    body = "\n".join(part for part in printed if part not in _SHELL_NOTHING)
    signal = _SIGNAL.search(lines, code_at)
    code = int(end[1]) if end[1] != "(none)" else 128 + int(signal[1]) if signal else None
    return Report(code, _without_placeholder(body))


def as_object(text: str) -> dict[str, Any] | None:
    """Returns the JSON object of a text; for a list, the first object that reports a failure."""
    if not text.lstrip().startswith(("{", "[{")):
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if isinstance(value, list):
        return next((one for one in value if isinstance(one, dict) and object_failed(one)), None)
    return value if isinstance(value, dict) else None


def _code_in(value: dict[str, Any]) -> int | None:
    for holder in (value, *(value.get(key) for key in _HOLDERS)):
        if isinstance(holder, dict):
            for name in _CODES:
                if isinstance(holder.get(name), int) and not isinstance(holder[name], bool):
                    return int(holder[name])
    return None


def _of_text(text: str) -> Report:
    if len(text) > 2 * _EDGE:
        text = f"{text[:_EDGE]}\n{text[-_EDGE:]}"
    tag = _TAG.search(text)
    if tag:
        rest = text[tag.end() :]
        output = _OUTPUT_TAG.match(rest)
        return Report(int(tag[2]), _without_placeholder(output[2] if output else rest))
    lines = text.strip("\n").split("\n")
    head = next((i for i, line in enumerate(lines[:_HEAD_LINES]) if _HEAD_END.match(line)), 0)
    for first in range(head or 1):
        match = _LINE.match(lines[first])
        if match:
            return Report(_number(match), _without_placeholder("\n".join(lines[(head or first) + 1 :])))
    filled = [i for i, line in enumerate(lines) if line.strip()]
    match = _LINE.match(lines[filled[-1]]) if filled else None
    if match:
        return Report(_number(match), _without_placeholder("\n".join(lines[: filled[-1]])))
    return Report(None, _without_placeholder(text))


def _number(match: re.Match[str]) -> int:
    return int(match[1])


def _without_placeholder(body: str) -> str:
    bare = body.strip()
    return "" if _NOTHING.match(bare) else bare


def text_failed(text: str) -> str | None:
    """Returns why a tool's plain text is a failure, in a few words; None without evidence."""
    read = TOOLS["no_failure"].sub(" ", _ends(text))
    match = TOOLS["failure"].search(read)
    if match is None and is_report(read):
        first = read.strip().split("\n", 1)[0]
        match = TOOLS["report"].search(first)
    return None if match is None else f"error text: {match.group().strip()[:60]}"


def text_succeeded(text: str) -> str | None:
    """Returns the evidence of success in a tool's plain text; None if there is none."""
    match = TOOLS["success"].search(_ends(text))
    return None if match is None else f"success text: {match.group().strip()[:60]}"


def summary_failed(text: str) -> str | None:
    """Returns the reason if the last lines (a test summary) prove a failure regardless of the exit code."""
    last = "\n".join(_ends(text).rstrip().split("\n")[-_SUMMARY_LINES:])
    match = TOOLS["summary_failure"].search(TOOLS["no_failure"].sub(" ", last))
    return None if match is None else f"summary: {match.group().strip()[:60]}"


def own_failure(text: str, programs: list[str]) -> str | None:
    """Returns the first line in which the shell or one of the programs, named at its start, reports an error."""
    named = dict.fromkeys(name for name in programs if name not in _TALKATIVE)
    names = "|".join([*map(re.escape, named), *_HELPERS])
    shell = r"(?:-?(?:ba|z|da)?sh|\S+\.sh): (?:-c: )?(?:line )?\d*:? ?"
    git = "|(?:fatal|error): " if "git" in named else ""
    own = rf"^\W{{0,4}}(?:{shell}\S|(?:\S*/)?(?:{names})(?:\[\d+\])?: {_HARMLESS}\S{git})"
    first = next((line for line in text.split("\n") if line.strip()), "")
    match = re.match(own, first, re.IGNORECASE)
    return f"error text: {first.strip()[:60]}" if match else None


def is_report(text: str) -> bool:
    """Returns whether a text is short, and not the beginning of a document, a listing or a program."""
    bare = text.strip()
    return len(bare) <= _SHORT_LENGTH and bare.count("\n") < _SHORT_LINES and not _DOCUMENT.match(bare)


def _ends(text: str) -> str:
    return text if len(text) <= 2 * _END_LENGTH else f"{text[:_END_LENGTH]}\n{text[-_END_LENGTH:]}"
