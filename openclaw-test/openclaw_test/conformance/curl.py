"""Checks with curl."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from openclaw_test.conformance.target import (
    FUNCTION,
    MAX_TOKENS,
    NO_MODEL,
    QUESTION,
    TOOL,
    WRONG_KEY,
    Check,
    NotInstalledError,
    Target,
    expect,
    expect_call,
)

FORCED = {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": FUNCTION["name"]}}}


def checks(target: Target) -> Mapping[str, Check]:
    """Returns checks of status and body of plain requests."""
    curl = shutil.which("curl")
    if curl is None:
        raise NotInstalledError("install curl")

    def ask(key: str = target.sent_key, **options: Any) -> tuple[int, str]:
        body = {"model": target.model, "messages": [{"role": "user", "content": QUESTION}]}
        data = json.dumps({**body, "max_tokens": MAX_TOKENS, **options})
        command = [curl, "-sN", "--max-time", "120", "--noproxy", "*", f"{target.base}/chat/completions"]
        command += ["-H", "Content-Type: application/json", "-H", f"Authorization: Bearer {key}", "-d", data]
        done = subprocess.run([*command, "-w", "\n%{http_code}"], capture_output=True, text=True, check=True)
        text, _, status = done.stdout.rpartition("\n")
        return int(status), text

    def choice(**options: Any) -> Any:
        status, text = ask(**options)
        expect(status == 200, f"status {status}: {text}")
        return json.loads(text)["choices"][0]

    def chunks(**options: Any) -> list[Any]:
        status, text = ask(stream=True, **options)
        events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
        expect(status == 200 and events[-1] == "[DONE]", "the stream does not end in [DONE]")
        return [json.loads(event)["choices"][0] for event in events[:-1]]

    def answer() -> None:
        expect(choice()["finish_reason"] in ("stop", "length"), "no finish reason")

    def stream() -> None:
        expect(chunks()[-1]["finish_reason"] in ("stop", "length"), "no finish reason at the end")

    def tool() -> None:
        answer = choice(**FORCED)
        calls = answer["message"].get("tool_calls") or []
        expect(bool(calls) == (answer["finish_reason"] == "tool_calls"), "finish reason and calls disagree")
        for call in calls:
            expect_call(call["function"]["name"], call["function"]["arguments"], True)

    def streamed_tool() -> None:
        parts = chunks(**FORCED)
        pieces = [call["function"] for part in parts for call in part["delta"].get("tool_calls", [])]
        text = "".join(piece["arguments"] for piece in pieces)
        expect_call(pieces[0]["name"] if pieces else None, text, parts[-1]["finish_reason"] == "tool_calls")

    def other_model() -> None:
        got, text = ask(model=NO_MODEL)
        expect(got == 200 and json.loads(text)["model"] == target.model, f"status {got}: {text}")

    def refused(status: int, **options: Any) -> None:
        got, text = ask(**options)
        expect(got == status and json.loads(text)["error"]["message"], f"status {got}: {text}")

    return {
        "answer": answer,
        "stream": stream,
        "tool": tool,
        "streamed-tool": streamed_tool,
        "wrong-field": lambda: refused(400, temperature=99),
        "other-model": other_model,
        "wrong-key": lambda: refused(401, key=WRONG_KEY),
    }
