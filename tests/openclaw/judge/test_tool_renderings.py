"""Results of tools as agents render them: shells of Gemini CLI and Qwen Code, colours, JSON errors, test runners."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import hint_by_rules, vote_by_rules
from openclaw.judge.rules.renderings import result_of_user
from openclaw.judge.rules.tool_calls import ToolCall
from openclaw.judge.rules.tool_results import read_tool_result

ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("tool_renderings.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["command"])
def test_a_tool_result_is_parsed_in_each_agents_format(row: dict[str, str]) -> None:
    score, why = read_tool_result(row["result"], ToolCall("exec", row["command"]))
    assert score == row["score"], why


def test_a_shell_report_with_a_multiline_command_is_parsed() -> None:
    text = "Command: cat <<E\nx\nE\nDirectory: (root)\nOutput: a\nError: b\nError: (none)\nExit Code: 3\nSignal: 0"
    assert read_tool_result(text, ToolCall("exec", "x")) == (-1, "tool failure: exit code 3")


HOSTILE = (
    "\nError: ", "\nExit Code: ", "\nOutput: ", "\nA: ", "\x1b[", "\x1b]", "<system-reminder>", "[Python interpreter: ",
    "[Python interpreter: x]\n", "<bash_metadata>\n", "<tool_response>", "[read x] Result:\n",
)  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_report_is_parsed_in_linear_time(piece: str) -> None:
    text = "Output: " + piece * 100_000
    begun = time.process_time()
    read_tool_result(text, ToolCall("exec", "x"))
    assert time.process_time() - begun < 2


DATA = Path(__file__).parent / "data" / "agent_results"
SHELLS = (
    "Bash", "shell", "shell_command", "exec_command", "run_shell_command", "execute_command", "execute_bash", "terminal",
    "exec",
)  # fmt: skip


def agent_rows(part: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / f"{part}.jsonl").read_text("utf-8").splitlines()]


def score_of(row: dict[str, str]) -> int:
    """The score of a turn that called the tool and got this result."""
    arguments = json.dumps({"command" if row["tool"] in SHELLS else "path": row["command"]})
    question = JudgeQuestion(
        response="I edited the file." if row["role"] == "user" else f"{row['tool']}({arguments})",
        next_state=[{"role": row["role"], "content": row["result"]}],
        role=row["role"],  # type: ignore[arg-type]
        messages=[{"role": "user", "content": "Please do it."}],
    )
    return vote_by_rules(question).score or 0


def test_results_of_nine_agents_are_judged_correctly() -> None:
    wrong = [(row["agent"], row["result"]) for row in agent_rows("seen") if score_of(row) != row["score"]]
    assert wrong == []


def test_nine_of_ten_held_out_results_are_judged_correctly() -> None:
    scores = [(score_of(row), int(row["score"])) for row in agent_rows("held_out")]
    assert sum(found == wanted for found, wanted in scores) >= 0.9 * len(scores)
    assert sum(found * wanted < 0 for found, wanted in scores) <= 1


@pytest.mark.parametrize(
    "said",
    [
        "I ran this command and it works, thanks!",
        "I committed the changes, what next?",
        "The tool execution failed with the following error: what does that mean?",
    ],
)
def test_a_users_text_about_tools_is_not_a_tool_result(said: str) -> None:
    assert result_of_user(said) is None


def test_a_tool_result_sent_as_the_user_gives_no_hint() -> None:
    said = "I ran this command:\n\npytest\n\nAnd got this output:\n\nError: please use shorter lines"
    question = JudgeQuestion(
        response="Done.", next_state=[{"role": "user", "content": said}], role="user", messages=[]
    )
    assert (vote_by_rules(question).score, hint_by_rules(question)) == (-1, "")
