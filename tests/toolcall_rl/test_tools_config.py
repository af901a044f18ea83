"""Tests `TOOLS_CONFIG`: its content, and a one-line error for each mistake."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from slime.errors import ConfigError
from toolcall_rl.tools.config import read_tools
from toolcall_rl.tools.function import FunctionSource
from toolcall_rl.tools.mcp import McpSource
from toolcall_rl.tools.python import PythonSource


def text_of(*tools: dict[str, Any], **more: object) -> str:
    return json.dumps({"tools": list(tools), **more})


def look_up(word: str, times: int = 1, tags: list[str] | None = None) -> str:
    """Looks a word up."""
    return word * times


def without_types(word) -> str:  # type: ignore[no-untyped-def]
    return str(word)


HERE = f"{__file__}:look_up"


def with_parameters(schema: dict[str, Any]) -> str:
    return text_of({"type": "function", "path": HERE, "parameters": schema})


def test_without_a_config_only_the_interpreter_is_available() -> None:
    found = read_tools()
    assert found.python == "code_interpreter" and [type(one) for one in found.sources] == [PythonSource]


def test_each_kind_of_tool_has_its_limits(tmp_path: Path) -> None:
    python = {
        "type": "python",
        "name": "run",
        "seconds": 2.5,
        "memory_mb": 64,
        "disk_mb": 8,
        "output_chars": 99,
    }
    function = {"type": "function", "path": HERE, "name": "dictionary", "calls": 3}
    server = {"type": "mcp", "command": [sys.executable, "s.py"], "environment": {"KEY": 1}, "only": ["add"]}
    file = tmp_path / "tools.json"
    file.write_text(text_of(python, function, server))
    interpreter, own, others = read_tools(str(file)).sources
    assert (
        isinstance(interpreter, PythonSource)
        and isinstance(own, FunctionSource)
        and isinstance(others, McpSource)
    )
    assert (interpreter.name, interpreter.limits.seconds, interpreter.limits.output_chars) == ("run", 2.5, 99)
    assert (interpreter.box.memory, interpreter.box.disk_bytes) == (64 << 20, 8 << 20)
    assert (own.tool.name, own.tool.description, own.limits.calls) == ("dictionary", "Looks a word up.", 3)
    assert (
        others.only == {"add"}
        and others.environment["KEY"] == "1"
        and "OPENCLAW_API_KEY" not in others.environment
    )


def test_a_functions_schema_follows_its_signature() -> None:
    [source] = read_tools(text_of({"type": "function", "path": HERE})).sources
    assert isinstance(source, FunctionSource) and source.tool.parameters == {
        "type": "object",
        "properties": {"word": {"type": "string"}, "times": {"type": "integer"}, "tags": {"type": "array"}},
        "required": ["word"],
    }


def test_a_config_may_include_others(tmp_path: Path) -> None:
    (tmp_path / "python.json").write_text(text_of({"type": "python"}))
    (tmp_path / "all.json").write_text(text_of({"type": "function", "path": HERE}, include=["python.json"]))
    found = read_tools(str(tmp_path / "all.json"))
    assert [type(one) for one in found.sources] == [PythonSource, FunctionSource]


def test_a_config_that_includes_itself_is_rejected_with_the_chain(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text_of(include=["b.json"]))
    (tmp_path / "b.json").write_text(text_of(include=["a.json"]))
    with pytest.raises(ConfigError, match=r"includes itself: a\.json -> b\.json -> a\.json"):
        read_tools(str(tmp_path / "a.json"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("/nonexistent.json", "cannot be read"),
        ("{tools}", "is not JSON: .* in line 1"),
        ('{"tools": {}}', "tools must be a list"),
        ('{"tools": []}', "names no tools"),
        ('{"tool": []}', "there is no setting 'tool'; known: include, tools"),
        (text_of({"type": "shell"}), "tool 1 must be an object with a type of python, function, mcp"),
        (text_of({"type": "python"}, {"type": "python"}), "two tools are called code_interpreter"),
        (text_of({"type": "python", "second": 1}), "a python tool has no setting 'second'; known: .*seconds"),
        (text_of({"type": "python", "seconds": "1"}), "seconds has the wrong type"),
        (text_of({"type": "python", "calls": True}), "calls has the wrong type"),
        (text_of({"type": "python", "memory_mb": 0}), "memory_mb must be above 0"),
        (text_of({"type": "function"}), "a function tool needs path"),
        (text_of({"type": "function", "path": f"{__file__}:nothing"}), "has no 'nothing'"),
        (text_of({"type": "function", "path": "no.such.module.f"}), "no module 'no"),
        (text_of({"type": "function", "path": f"{__file__}:HERE"}), "is a str, not a function"),
        (
            text_of({"type": "function", "path": f"{__file__}:without_types"}),
            "the parameter word needs a type",
        ),
        (text_of({"type": "python", "seconds": float("nan")}), "seconds must be above 0"),
        (text_of({"type": "python", "name": "two words"}), "a tool's name has letters"),
        (with_parameters({"required": ["none"]}), "they require none, which the function does not take"),
        (with_parameters({"properties": {"other": {}}}), "the function needs .*, which they do not contain"),
        (with_parameters({"properties": {"x": {"type": "text"}}}), "x has the unknown type 'text'"),
        (text_of({"type": "mcp", "command": []}), "a mcp tool needs command"),
        (text_of({"type": "mcp", "command": ["no-such-program-here"]}), "there is no program"),
    ],
)
def test_errors_are_reported_in_one_line(config: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        read_tools(config)
    assert "\n" not in str(refused.value)
