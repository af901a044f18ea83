"""The agent's shell tools, and their effects."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable
from typing import Any

from slime.agents import Tool, ToolCall
from slime.sandbox import Shells, Shown

USUAL_SECONDS, LONGEST_SECONDS = 20.0, 300.0
FILES = "write-file"  # the shell that writes files
_ID = {"type": "string", "description": "Name of the shell. A new name starts a new shell."}


def _tool(name: str, description: str, required: list[str], **properties: dict[str, str]) -> Tool:
    return Tool(name, description, {"type": "object", "properties": properties, "required": required})


SHELL_EXEC = _tool(
    "shell_exec",
    "Runs a command in a shell, which keeps its folder and variables between calls. With block, waits for the end "
    "and returns the output; what runs longer than timeout goes on in the background. Without block, returns at once: "
    "look at it with shell_view, type into it with shell_write_to_process, end it with shell_kill_process.",
    ["id", "command"],
    id=_ID,
    command={"type": "string", "description": "A bash command."},
    block={"type": "boolean", "description": "Wait for the end (default true)."},
    timeout={"type": "number", "description": f"Seconds to wait (default {USUAL_SECONDS:g})."},
)
SHELL_VIEW = _tool(
    "shell_view", "Returns what a shell has printed since it was last looked at.", ["id"], id=_ID
)
SHELL_WRITE = _tool(
    "shell_write_to_process",
    "Types a line into the command that runs in a shell, waits until it is quiet, and returns what it printed.",
    ["id", "command"],
    id=_ID,
    command={"type": "string", "description": "The line, or one control character."},
)
SHELL_FILE = _tool(
    "shell_write_content_to_file",
    "Writes a text to a file, in place of what was there. Folders on the way are made.",
    ["content", "file_path"],
    content={"type": "string", "description": "The whole text."},
    file_path={"type": "string", "description": "Path of the file."},
)
SHELL_KILL = _tool("shell_kill_process", "Ends a shell and all that runs in it.", ["id"], id=_ID)
TOOLS = (SHELL_EXEC, SHELL_VIEW, SHELL_WRITE, SHELL_FILE, SHELL_KILL)
"""Exactly the tools that the prompt and the descriptions mention."""


def _execute(shells: Shells, arguments: dict[str, Any], left: float) -> Shown:
    seconds = min(max(float(arguments.get("timeout", USUAL_SECONDS)), 0.0), LONGEST_SECONDS, left)
    return shells.execute(
        arguments.get("id", "main"), arguments["command"], seconds, arguments.get("block", True)
    )


def _write_file(shells: Shells, arguments: dict[str, Any], left: float) -> Shown:
    path, text = shlex.quote(arguments["file_path"]), base64.b64encode(arguments["content"].encode()).decode()
    command = f'mkdir -p -- "$(dirname -- {path})" && printf %s {text} | base64 -d > {path}'
    done = shells.execute(FILES, command)
    shells.kill(FILES)
    return done


DOES: dict[str, Callable[[Shells, dict[str, Any], float], Shown]] = {
    "shell_exec": _execute,
    "shell_view": lambda shells, arguments, left: shells.view(arguments["id"]),
    "shell_write_to_process": lambda shells, arguments, left: shells.write(
        arguments["id"], arguments["command"]
    ),
    "shell_write_content_to_file": _write_file,
    "shell_kill_process": lambda shells, arguments, left: shells.kill(arguments["id"]),
}


def answer(shells: Shells, call: ToolCall, left: float = LONGEST_SECONDS) -> str:
    """Returns the output of a call as text for the model. Blocks; no command runs for longer than `left` seconds.
    Raises SandboxError if the sandbox did not start."""
    if call.name not in DOES:
        return f"Error: there is no tool {call.name!r}; tools: {', '.join(DOES)}"
    try:
        return DOES[call.name](shells, call.arguments, left).text() or "[no output]"
    except KeyError as missing:
        return f"Error: {call.name}: the argument {missing.args[0]} is missing"
