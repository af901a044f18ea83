"""The rules judge on labelled next states.

`examples/tuning.jsonl` shaped the rules; `examples/held_out.jsonl` was written before them, never tuned on.
Labels: -1 complaint, correction, redo or change request, tool failure; 1 thanks, approval, tool success;
0 a new request that says nothing about the answer, or a tool result without evidence.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import vote_by_rules

EXAMPLES = Path(__file__).parent / "examples"
REQUEST = "Tom has 3 apples and buys 4. How many apples does he have?"
ANSWER = "**Answer:** 7\n1. Tom has 3 apples.\n2. He buys 4 more."


def score(*next_state: dict[str, Any] | str, asked: str = REQUEST, answer: str = ANSWER) -> int | None:
    messages = [
        {"role": "user", "content": state} if isinstance(state, str) else state for state in next_state
    ]
    question = JudgeQuestion(
        response=answer,
        next_state=messages,
        role="user" if messages[-1]["role"] == "user" else "tool",
        messages=[{"role": "user", "content": asked}],
    )
    return vote_by_rules(question).score


def tool(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text}


def _agreement(name: str, clear_only: bool) -> float:
    lines = (EXAMPLES / f"{name}.jsonl").read_bytes().splitlines()
    rows = [row for row in map(orjson.loads, lines) if row["label"] or not clear_only]
    assert len(rows) >= 90
    hits = sum(score(*row["next"], asked=row.get("asked", REQUEST)) == row["label"] for row in rows)
    print(f"{name}: {hits}/{len(rows)} = {hits / len(rows):.3f}{' (clear ones)' if clear_only else ''}")
    return hits / len(rows)


@pytest.mark.parametrize(("name", "bar"), [("tuning", 0.97), ("held_out", 0.9)])
@pytest.mark.parametrize("clear_only", [True, False])
def test_rules_agree_with_the_labels(name: str, bar: float, clear_only: bool) -> None:
    assert _agreement(name, clear_only) >= bar


@pytest.mark.parametrize(
    "text",
    [
        "Tom loses 3 apples, drops 2 and has 5 left. How many did he have?",
        "Please solve: a killer whale eats 40 fish a day and wastes 8. How many in a week?",
        "Next one: A thief stole 30 dollars and a bad storm destroyed 12 of them.",
    ],
)
def test_words_of_a_homework_problem_are_not_feedback(text: str) -> None:
    assert score(text) == 0


def test_only_the_praise_before_a_new_problem_counts() -> None:
    assert score("Great! Next: Lisa drops 4 of her 10 plates and is sad. How many are left?") == 1
    assert score("No, that's wrong. Next: Lisa wins 4 great prizes and loves them. How many has she?") == -1


@pytest.mark.parametrize(
    "text", ["No problem, thanks!", "Please save it.", "Not bad at all!", "no worries, thank you"]
)
def test_words_that_only_seem_negative_are_neutral(text: str) -> None:
    assert score(text) == 1


def test_thanks_with_a_change_request_is_a_complaint() -> None:
    assert score("Thanks, but please write it without the list.") == -1


def test_the_same_request_again_is_a_complaint_unless_its_numbers_changed() -> None:
    assert score("How many apples does Tom have? He has 3 and buys 4 apples.") == 0
    assert score("Tom has 3 apples and he buys 4. So how many apples does he have?") == -1
    assert score("Tom has 5 apples and buys 6. How many apples does he have?") == 0
    assert score("ok", asked="ok") == 0


def test_any_failed_tool_result_fails_the_turn() -> None:
    assert score(tool("saved"), tool('{"exit_code": 1}'), tool("saved")) == -1
    assert score(tool("saved"), tool('{"exit_code": 0}')) == 1


def test_a_user_message_outranks_the_tool_result() -> None:
    assert score(tool("Error: no such file"), "Perfect, thank you!") == 1
    assert score(tool("saved"), "That's the wrong file.") == -1
    assert score(tool("Error: no such file"), "Who wrote Hamlet?") == -1


def test_an_error_inside_a_displayed_file_is_not_a_failure() -> None:
    text = tool("Tom makes an error in 3 of 10 answers and fails. How many are right?")
    assert score(text) == 0
    assert score(text, answer='read({"path": "homework/1.txt"})') == 1


def test_an_exit_code_outranks_the_text_around_it() -> None:
    assert score(tool("error: old log line\nexit code: 0")) == 1
    assert score(tool("all fine\nProcess exited with code 3")) == -1


def test_content_parts_are_read_as_text() -> None:
    assert score({"role": "user", "content": [{"type": "text", "text": "No bullet points please."}]}) == -1


def test_an_empty_next_state_is_neutral() -> None:
    assert score({"role": "user", "content": ""}) == 0


def test_a_vote_names_the_deciding_rule() -> None:
    question = JudgeQuestion(response="", next_state=[tool('{"ok": false}')], role="tool", messages=[])
    assert vote_by_rules(question).text == "tool failure: ok is false"


@pytest.mark.parametrize(
    "text", ["looks " + "very " * 20_000, "hello world " * 10_000, "1 " * 50_000, '"' * 50_001]
)
def test_a_huge_message_is_judged_quickly(text: str) -> None:
    started = time.monotonic()
    score(text, asked=text[:-3])
    score(tool(text))
    assert time.monotonic() - started < 1.0


@pytest.mark.parametrize(
    "said",
    [
        "Thank you, that is what I wanted, perfect!", "This is what I asked for.", "Yes, that is what I meant, thanks",
        "Nice, I wanted it just like that.", "Cool, I wanted exactly this", "谢谢!这就是我想要的", "Awesome, works now",
    ],
)  # fmt: skip
def test_praise_that_mentions_the_request_is_not_a_complaint(said: str) -> None:
    assert score(said) == 1


@pytest.mark.parametrize(
    "said", ["I wanted just the number", "I wanted it exactly once", "I asked for exactly two lines"]
)
def test_an_unfulfilled_request_is_still_a_complaint(said: str) -> None:
    assert score(said) == -1
