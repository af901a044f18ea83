"""The forms in which agents are shown the result of a command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """What a command printed, standard output and error together, and its exit code; None when it ran too long."""

    output: str
    code: int | None


def openclaw(result: Result) -> str:
    shown = result.output or "(no output)"
    return shown if result.code == 0 else f"{shown}\n\n(Command exited with code {result.code})"


def openclaw_error(result: Result) -> str:
    if result.code == 0:
        return openclaw(result)
    error = f"{result.output}\n\nCommand exited with code {result.code}".strip()
    return json.dumps({"status": "error", "tool": "exec", "error": error}, indent=2, ensure_ascii=False)


def claude_code(result: Result) -> str:
    if result.code == 0:
        return result.output or "(Bash completed with no output)"
    return f"Exit code {result.code}\n{result.output}".rstrip()


def codex(result: Result) -> str:
    return f"Exit code: {result.code}\nWall time: 0.4 seconds\nOutput:\n{result.output}"


def as_json(result: Result) -> str:
    return json.dumps({"exit_code": result.code, "output": result.output}, ensure_ascii=False)


def as_json_with_metadata(result: Result) -> str:
    metadata = {"exit_code": result.code, "duration_seconds": 0.4}
    return json.dumps({"output": result.output, "metadata": metadata}, ensure_ascii=False)


def tagged(result: Result) -> str:
    return f"<returncode>{result.code}</returncode>\n<output>\n{result.output}\n</output>"


def trailer(result: Result) -> str:
    return f"{result.output}\n[The command completed with exit code {result.code}.]".lstrip()


FORMS: list[tuple[str, Callable[[Result], str]]] = [
    ("exec", openclaw),
    ("Bash", claude_code),
    ("shell", as_json_with_metadata),
    ("exec", openclaw_error),
    ("shell", codex),
    ("run_command", as_json),
    ("bash", tagged),
    ("execute_bash", trailer),
]
