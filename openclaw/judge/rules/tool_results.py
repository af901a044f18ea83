"""Did a tool call work? 1 and -1 need evidence: an exit code, a failure that the program itself wrote, or a success.

exit code 0        1, unless the output proves a failure that the code hides; 0 where a search found nothing
another code       -1; 0 for code 1 of a program that so says "no" (grep, diff, test)
no code            -1 for a recognised failure, 1 for a recognised success or for text that a call was to show
anything else      0
"""

from __future__ import annotations

from typing import Any

from openclaw.judge.rules.exit_codes import Report, as_object, read_report
from openclaw.judge.rules.tool_calls import ToolCall
from openclaw.judge.rules.tool_text import (
    is_report,
    own_failure,
    summary_failed,
    text_failed,
    text_succeeded,
)
from openclaw.judge.rules.wordings import TOOLS

Verdict = tuple[int, str]

TOOL_ROLES = frozenset({"tool", "function"})
"""Of messages that hold results of tools."""
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
_HTTP_CODES = ("status", "statusCode", "status_code", "http_status", "code")
_NESTED = ("result", "details", "data", "output")
_UNKNOWN = (0, "no evidence in the tool result")


def read_tool_results(texts: list[str], calls: list[ToolCall]) -> Verdict:
    """One verdict on all results of a turn: one failure fails it, and only if all are successes it is one."""
    paired = calls if len(calls) == len(texts) else [ToolCall()] * len(texts)
    verdicts = [read_tool_result(text, call) for text, call in zip(texts, paired, strict=True)]
    for sign in (-1, 0):
        found = next((verdict for verdict in verdicts if verdict[0] == sign), None)
        if found:
            return found
    return verdicts[0]


def read_tool_result(text: str, call: ToolCall) -> Verdict:
    """(score, why) of one result."""
    report = read_report(text)
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
    failure = own_failure(body, _programs(call)) if call.hides_failures or call.looks else None
    if not call.looks:
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
    if call.looks:
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
    """A call that was to show something: its output is that, whatever it speaks of, unless the program complains."""
    body, value = report.body, report.value
    if value is not None and value.get("status") == "error":
        return -1, "tool failure: status is error"
    failure = own_failure(body, _programs(call))
    if failure is None and not call.shows_texts and (is_report(body) or call.command):
        first = body.split("\n", 1)[0]
        opening = TOOLS["opening_failure"].match(first)
        failure = f"error text: {opening.group()[:60]}" if opening else None
    if failure:
        return -1, f"tool failure: {failure}"
    if TOOLS["nothing_found"].search(body) and is_report(body):
        return 0, "nothing found"
    return 1, "tool success: it shows what it was to show"


def object_failed(value: dict[str, Any]) -> str | None:
    """Why a JSON object reports a failure."""
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
    status = value.get("status")
    if isinstance(status, str) and status.lower() in _BAD_STATUS:
        return f"status is {status.lower()}"
    inner = (value[name] for name in _NESTED if isinstance(value.get(name), dict))
    return next((why for why in map(object_failed, inner) if why), None)


def object_succeeded(value: dict[str, Any]) -> str | None:
    """What in a JSON object that reports no failure says that it worked."""
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
    status = value.get("status")
    if isinstance(status, str) and status.lower() in _GOOD_STATUS:
        return f"status is {status.lower()}"
    return next((f"{name} in the result" for name in ("result", "data") if value.get(name)), None)


def _programs(call: ToolCall) -> list[str]:
    return [step.program for step in call.steps]
