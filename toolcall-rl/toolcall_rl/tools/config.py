"""Reads `TOOLS_CONFIG`: JSON, given as a file or as the text itself.

{"include": ["more.json"],
 "tools": [
   {"type": "python", "seconds": 10, "memory_mb": 512},
   {"type": "function", "path": "my_tools.py:look_up", "calls": 4},
   {"type": "mcp", "command": ["python", "server.py"], "only": ["search"], "prefix": "web_"}]}

An invalid file is reported in one line, at the start of the run.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slime.errors import ConfigError
from slime.plugins import load_attr
from slime.rollout.rm_hub.guard import UserThreads
from slime.sandbox import Limits
from toolcall_rl.tools.function import FunctionSource, tool_of
from toolcall_rl.tools.mcp import McpSource
from toolcall_rl.tools.python import PythonSource
from toolcall_rl.tools.toolset import CallLimits, Source, Toolset

DEFAULT = '{"tools": [{"type": "python"}]}'
OF_ALL = {"type": str, "seconds": (int, float), "output_chars": int, "calls": int}
OF_KIND: dict[str, dict[str, Any]] = {
    "python": {"name": str, "memory_mb": int, "cpu_seconds": int, "processes": int, "disk_mb": int},
    "function": {"path": str, "name": str, "description": str, "parameters": dict, "parallel": int},
    "mcp": {"command": list, "environment": dict, "only": list, "prefix": str, "parallel": int},
}
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
NEEDED = {"python": (), "function": ("path",), "mcp": ("command",)}


def read_tools(config: str = "") -> Toolset:
    """Returns the tools of `TOOLS_CONFIG`; only the interpreter if it is empty.

    Raises:
        ConfigError: a missing file, invalid JSON, a file that includes itself, an unknown name, a value out of range,
            or two tools with one name.
    """
    entries = _entries(config or DEFAULT, ())
    if not entries:
        raise ConfigError("TOOLS_CONFIG names no tools; leave it empty for the Python interpreter")
    sources = [_source(where, entry) for where, entry in entries]
    interpreters = [one.name for one in sources if isinstance(one, PythonSource)]
    names = interpreters + [one.tool.name for one in sources if isinstance(one, FunctionSource)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"TOOLS_CONFIG: two tools are called {twice[0]}; give one another name")
    return Toolset(tuple(sources), interpreters[0] if interpreters else None)


def _entries(config: str, within: tuple[Path, ...]) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns (position, entry) of a config and of all files that it includes."""
    where, text, folder = "TOOLS_CONFIG", config, Path.cwd()
    if not config.lstrip().startswith("{"):
        path = Path(config).expanduser().resolve()
        if path in within:
            chain = " -> ".join(one.name for one in (*within[within.index(path) :], path))
            raise ConfigError(f"TOOLS_CONFIG includes itself: {chain}")
        where, within, folder = str(path), (*within, path), path.parent
        text = _text(path)
    content = _object(where, text)
    if unknown := sorted(set(content) - {"tools", "include"}):
        raise ConfigError(f"{where}: there is no setting {unknown[0]!r}; known: include, tools")
    entries = []
    for included in _list(where, content, "include"):
        entries += _entries(str(folder / str(included)), within)
    return entries + [
        (f"{where}: tool {number}", one) for number, one in enumerate(_list(where, content, "tools"), 1)
    ]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"TOOLS_CONFIG: {path} cannot be read: {error}") from error


def _object(where: str, text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where} is not JSON: {error.msg} in line {error.lineno}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{where} must be an object such as {DEFAULT}, got {type(content).__name__}")
    return content


def _list(where: str, content: Mapping[str, Any], name: str) -> list[Any]:
    value = content.get(name, [])
    if not isinstance(value, list):
        raise ConfigError(f"{where}: {name} must be a list")
    return value


def _source(where: str, entry: object) -> Source:
    if not isinstance(entry, dict) or entry.get("type") not in OF_KIND:
        raise ConfigError(f"{where} must be an object with a type of {', '.join(OF_KIND)}, got {entry!r:.80}")
    kind = entry["type"]
    known = {**OF_ALL, **OF_KIND[kind]}
    for name, value in entry.items():
        if name not in known:
            raise ConfigError(f"{where}: a {kind} tool has no setting {name!r}; known: {', '.join(known)}")
        if not isinstance(value, known[name]) or isinstance(value, bool):
            raise ConfigError(f"{where}: {name} has the wrong type: {value!r:.80}")
        if isinstance(value, int | float) and not 0 < value < math.inf:
            raise ConfigError(f"{where}: {name} must be above 0, got {value}")
        if name == "name" and not NAME.fullmatch(value):
            raise ConfigError(f"{where}: a tool's name has letters, digits, _ and -, got {value!r:.80}")
    if missing := [name for name in NEEDED[kind] if not entry.get(name)]:
        raise ConfigError(f"{where}: a {kind} tool needs {missing[0]}")
    return MAKERS[kind](where, entry, _limits(entry))


def _limits(entry: Mapping[str, Any]) -> CallLimits:
    return CallLimits(**{name: entry[name] for name in ("seconds", "output_chars", "calls") if name in entry})


def _python(where: str, entry: Mapping[str, Any], limits: CallLimits) -> Source:
    box = {name: entry[name] for name in ("cpu_seconds", "processes") if name in entry}
    # the caller shortens the output further
    box["output_chars"] = max(Limits.output_chars, 2 * limits.output_chars)
    box |= {
        to: entry[name] << 20
        for name, to in (("memory_mb", "memory"), ("disk_mb", "disk_bytes"))
        if name in entry
    }
    return PythonSource(entry.get("name", PythonSource.name), limits, Limits(**box))


def _function(where: str, entry: Mapping[str, Any], limits: CallLimits) -> Source:
    try:
        function = load_attr(entry["path"])
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    if not callable(function):
        raise ConfigError(f"{where}: {entry['path']} is a {type(function).__name__}, not a function")
    name = entry.get("name") or function.__name__
    return FunctionSource(
        function, tool_of(function, name, entry), limits, UserThreads(entry.get("parallel", 8))
    )


def _mcp(where: str, entry: Mapping[str, Any], limits: CallLimits) -> Source:
    command = [str(word) for word in entry["command"]]
    if shutil.which(command[0]) is None:
        raise ConfigError(f"{where}: there is no program {command[0]!r}")
    own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    own |= {str(name): str(value) for name, value in entry.get("environment", {}).items()}
    only = frozenset(map(str, entry.get("only", [])))
    return McpSource(command, own, limits, only, entry.get("prefix", ""), entry.get("parallel", 8))


MAKERS: dict[str, Callable[[str, Mapping[str, Any], CallLimits], Source]] = {
    "python": _python,
    "function": _function,
    "mcp": _mcp,
}
