"""Results of tools as agents render them: shells of Gemini CLI and Qwen Code, colours, JSON errors, test runners."""

from __future__ import annotations

import json
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
