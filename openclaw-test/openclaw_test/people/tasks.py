"""The other two tasks of the evaluation: small programs, and tool calls.

The items are in `tasks.json`; programs are run, calls are compared.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"```(?:python|py)?\s*\n(.*?)```", re.DOTALL)
SECONDS = 5
MEMORY_BYTES = 512 * 2**20


@dataclass(frozen=True)
class CodingItem:
    """A function to write; `checks` are expressions that must be true."""

    prompt: str
    checks: tuple[str, ...]


def run_code(reply: str, item: CodingItem) -> bool:
    """Returns whether the reply's code passes the checks, run in its own process in an empty folder.

    Time, memory and file size are limited. This is no sandbox: evaluate only trusted models, or use a container.
    """
    blocks = _BLOCK.findall(reply)
    code = blocks[-1] if blocks else reply
    program = (
        code
        + "\n\n"
        + "\n".join(f"assert {check}" for check in item.checks)
        + "\nprint('all checks passed')\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", program], cwd=folder, capture_output=True, text=True, timeout=SECONDS,
                env={}, preexec_fn=_limit, check=False,
            )  # fmt: skip
        except (subprocess.TimeoutExpired, ValueError):
            return False
    return done.returncode == 0 and done.stdout.endswith("all checks passed\n")


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
    resource.setrlimit(resource.RLIMIT_NPROC, (64, 64))


@dataclass(frozen=True)
class ToolItem:
    """A question that needs a tool; `tool` and `arguments`: the right call."""

    prompt: str
    tool: str
    arguments: dict[str, Any]


def is_right_call(message: dict[str, Any], item: ToolItem) -> bool:
    """Returns whether the first structured call is the right one; factors may be swapped, and case is ignored."""
    calls = message.get("tool_calls") or []
    if not calls or calls[0]["function"]["name"] != item.tool:
        return False
    try:
        arguments = json.loads(calls[0]["function"]["arguments"])
    except json.JSONDecodeError:
        return False
    if not isinstance(arguments, dict):
        return False
    plain = {key: _plain(value) for key, value in arguments.items()}
    if item.tool == "multiply":
        return sorted(map(str, plain.values())) == sorted(str(_plain(v)) for v in item.arguments.values())
    return plain == {key: _plain(value) for key, value in item.arguments.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip().lower().removeprefix("./")
        return float(text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else text
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_ITEMS = json.loads(Path(__file__).with_name("tasks.json").read_text())
CODING = tuple(CodingItem(item["prompt"], tuple(item["checks"])) for item in _ITEMS["coding"])
TOOL_USE = tuple(ToolItem(**item) for item in _ITEMS["tool_use"])
TOOLS: list[dict[str, Any]] = _ITEMS["tools"]

Ask = Callable[..., dict[str, Any]]
"""Sends one question; returns the assistant's message."""


def coding_score(ask: Ask) -> float:
    """Returns the share of programs that pass all checks."""
    passed = sum(run_code(str(ask(item.prompt).get("content") or ""), item) for item in CODING)
    return passed / len(CODING)


def tool_use_score(ask: Ask) -> float:
    """Returns the share of right calls."""
    right = sum(is_right_call(ask(item.prompt, tools=TOOLS), item) for item in TOOL_USE)
    return right / len(TOOL_USE)
