"""Tests the conversion of published files of problems and conversations to rows of a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from slime.errors import DataError
from slime.rollout.loss_masks import masked
from slime.rollout.tokenizer import load_tokenizer
from tests import MODEL
from toolcall_rl.data import __main__ as program
from toolcall_rl.data.conversations import conversations
from toolcall_rl.data.problems import problems

BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


def dapo(problem: str, answer: str) -> dict[str, Any]:
    asked = [{"role": "user", "content": BEFORE + problem + AFTER}]
    return {
        "prompt": asked,
        "reward_model": {"ground_truth": answer, "style": "rule"},
        "data_source": "math_dapo",
    }


def rows(*found: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(f"file:{number}", row) for number, row in enumerate(found, 1)]


def test_dapos_instructions_are_removed_and_each_problem_is_kept_once() -> None:
    kept = problems(
        rows(dapo("Find $x$.\n\nIt is  odd.", "34"), dapo("Find $x$.\n\nIt is odd.", "34"), dapo("b", "1"))
    )
    assert [(row["prompt"], row["label"]) for row in kept.rows] == [
        ("Find $x$.\n\nIt is  odd.", "34"),
        ("b", "1"),
    ]
    assert kept.left_out == {"repeated": 1}
    assert len({row["metadata"]["task_id"] for row in kept.rows}) == 2


def test_ambiguous_and_held_out_problems_are_skipped() -> None:
    kept = problems(rows(dapo("a", "1"), dapo("a", "2"), dapo("b ", "3"), dapo("c", "4")), without=["b"])
    assert [row["prompt"] for row in kept.rows] == ["c"]
    assert kept.left_out == {"repeated": 1, "answers disagree": 1, "held out": 1}


@pytest.mark.parametrize(
    "row",
    [
        {"Problem": "p", "Answer": 204},
        {"problem": "p", "answer": "204", "solution": "long"},
        {"prompt": [{"role": "user", "content": "p"}], "label": "204"},
        {"question": "p", "expected_answer": "204"},
    ],
)
def test_aime_files_are_read_with_each_of_their_column_names(row: dict[str, Any]) -> None:
    [found] = problems(rows(row)).rows
    assert (found["prompt"], found["label"]) == ("p", "204")


def test_a_row_without_problem_or_answer_is_reported() -> None:
    with pytest.raises(DataError, match=r"file:1: no answer in any of .*; it has problem"):
        problems(rows({"problem": "p"}))
    with pytest.raises(DataError, match="file:1: no problem"):
        problems(rows({"answer": "1"}))


RETOOL = {
    "messages": [
        {"role": "user", "content": "Use <code>. Results come in <interpreter>.\n\n*user question:*\n6 * 7?"},
        {
            "role": "assistant",
            "content": "I compute.\n<code>\n```python\nprint(6*7)\n```\n</code>\n<interpreter>\n42\n</interpreter>\n"
            "So <answer>\\boxed{42}</answer>",
        },
    ]
}


def test_code_and_results_become_separate_turns() -> None:
    kept = conversations(rows(RETOOL))
    [found] = kept.rows
    assert [message["role"] for message in found["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    _, question, code, shown, answer = (message["content"] for message in found["messages"])
    assert (question, shown) == ("6 * 7?", "42") and answer == "So <answer>\\boxed{42}</answer>"
    call = {"name": "code_interpreter", "arguments": {"code": "print(6*7)"}}
    assert code == f"I compute.\n<tool_call>\n{json.dumps(call)}\n</tool_call>"


def test_fine_tuning_trains_turns_but_not_tool_results() -> None:
    [row] = conversations(rows(RETOOL)).rows
    tokenizer = load_tokenizer(str(MODEL))
    found = masked(tokenizer, row["messages"], row["tools"], "qwen")
    trained = tokenizer.decode([one for one, kept in zip(found.ids, found.mask, strict=True) if kept])
    assert "print(6*7)" in trained and "\\boxed{42}" in trained and "tool_response" not in trained
    assert "<tool_response>\n42\n</tool_response>" in tokenizer.decode(found.ids)


def test_conversations_with_broken_markup_are_skipped_and_counted() -> None:
    broken = {
        "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<code>print(1)"}]
    }
    open_end = {"conversations": [{"from": "human", "value": "q"}]}
    kept = conversations(rows(broken, open_end))
    assert kept.rows == [] and kept.left_out == {"markup that does not close": 1, "no answer at the end": 1}
    with pytest.raises(DataError, match="file:1: no messages"):
        conversations(rows({"text": "q"}))


def test_the_program_reads_json_lines_and_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        pyarrow.Table.from_pylist([dapo("a", "1"), dapo("b", "2")]), tmp_path / "dapo.parquet"
    )
    (tmp_path / "aime.jsonl").write_text(json.dumps({"Problem": "b", "Answer": 2}) + "\n")
    out = tmp_path / "new" / "out.jsonl"
    words = [
        "problems",
        str(tmp_path / "dapo.parquet"),
        "--out",
        str(out),
        "--without",
        str(tmp_path / "aime.jsonl"),
    ]
    monkeypatch.setattr(sys, "argv", ["data", *words])
    assert program.main() == 0
    assert [json.loads(line)["prompt"] for line in out.read_text().splitlines()] == ["a"]
    assert "1 rows in" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["data", "sft", str(tmp_path / "none.jsonl"), "--out", str(out)])
    assert program.main() == 2 and "does not exist" in capsys.readouterr().err
