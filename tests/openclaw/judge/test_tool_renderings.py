"""Results of tools as agents render them: shells of Gemini CLI and Qwen Code, colours, JSON errors, test runners."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from openclaw.judge.rules.tool_calls import ToolCall
from openclaw.judge.rules.tool_results import read_tool_result

ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("tool_renderings.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["command"])
def test_a_result_is_read_in_each_rendering(row: dict[str, str]) -> None:
    score, why = read_tool_result(row["result"], ToolCall("exec", row["command"]))
    assert score == row["score"], why


def test_a_report_of_a_shell_with_several_lines_in_its_command_is_read() -> None:
    text = "Command: cat <<E\nx\nE\nDirectory: (root)\nOutput: a\nError: b\nError: (none)\nExit Code: 3\nSignal: 0"
    assert read_tool_result(text, ToolCall("exec", "x")) == (-1, "tool failure: exit code 3")


@pytest.mark.parametrize("piece", ["\nError: ", "\nExit Code: ", "\nOutput: ", "\nA: ", "\x1b[", "\x1b]"])
def test_a_hostile_report_is_read_in_linear_time(piece: str) -> None:
    text = "Output: " + piece * 100_000
    begun = time.process_time()
    read_tool_result(text, ToolCall("exec", "x"))
    assert time.process_time() - begun < 2
