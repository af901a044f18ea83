from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from openclaw.errors import ConfigError
from openclaw.judge.backends.prompts import PromptSet
from openclaw.judge.backends.votes import Reply, read_eval_vote, read_hint_vote
from openclaw.judge.questions import JudgeQuestion, majority_score, question_about
from openclaw.types import Turn, Vote


@pytest.mark.parametrize(
    ("scores", "threshold", "expected"),
    [
        ([1, 1, -1], 0.0, 1.0),
        ([-1], 0.0, -1.0),
        ([1, -1], 0.0, 0.0),
        ([1, 1, -1, -1, 0], 0.0, 0.0),
        ([1, 1, -1, 0], 0.0, 1.0),
        ([0, 0, 1], 0.0, 0.0),
        ([], 0.0, 0.0),
        ([None, None], 0.0, 0.0),
        ([None, -1, None], 0.9, -1.0),
        ([1, 1, -1], 0.7, 0.0),
        ([1, 1, -1], 0.6, 1.0),
        ([1, 1, 1], 1.0, 1.0),
    ],
)
def test_the_majority_of_the_valid_votes_decides(
    scores: list[int | None], threshold: float, expected: float
) -> None:
    assert majority_score([Vote(score=score) for score in scores], threshold) == expected


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        (r"So it is \boxed{1}", 1),
        (r"\boxed{1} no, wait: \boxed{-1}", -1),
        (r"\boxed{ +1 }", 1),
        (r"\boxed{0}", 0),
        (r"\boxed{2}", None),
        ("1", None),
        ("", None),
    ],
)
def test_the_last_box_of_a_judge_model_counts(reply: str, score: int | None) -> None:
    assert read_eval_vote(reply).score == score


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


DATA = Path(__file__).parent / "data" / "model_replies"


@pytest.mark.parametrize("part", ["seen", "held_out"])
def test_recorded_replies_are_parsed_without_a_wrong_vote(part: str) -> None:
    """At least 29 of 30 in each part."""
    misses = []
    for row in rows(f"{part}.jsonl"):
        answer = {"choices": [{"message": row["message"], "finish_reason": row["finish_reason"]}]}
        score = read_eval_vote(Reply.of_chat(answer)).score
        assert score in (row["vote"], None), row
        misses += [row] if score != row["vote"] else []
    assert len(misses) <= 1


@pytest.mark.parametrize(
    "piece",
    [
        "{",
        '{"',
        "\\boxed{",
        '"',
        "```",
        "`",
        "<think>",
        "</think>",
        "Score: ",
        "1 ",
        "“",
        "„",
        "«",
        "「",
        "-" * 9,
    ],
)
def test_a_hostile_reply_is_parsed_in_linear_time(piece: str) -> None:
    begun = time.process_time()
    read_eval_vote(piece * (100_000 // len(piece)))
    assert time.process_time() - begun < 2


def test_the_prompt_contains_the_reply_and_the_next_state_with_its_role() -> None:
    question = JudgeQuestion(
        response="it is {7}", next_state=[{"role": "tool", "content": "exit 1"}], role="tool", messages=[]
    )
    system, user = PromptSet.load(None).eval.messages(question)
    assert system["role"] == "system" and user["role"] == "user"
    assert "it is {7}" in user["content"] and "role: tool" in user["content"] and "exit 1" in user["content"]


def test_a_tool_call_is_part_of_the_judged_reply() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "read", "arguments": '{"path": "x"}'}}
    turn = Turn(
        completion_id="c",
        session_id="s",
        messages=[],
        response_message={"role": "assistant", "content": None, "tool_calls": [call]},
        prompt_ids=[1],
        completion_ids=[1],
        completion_log_probs=[-1.0],
        version_spans=[(0, 0, 1)],
        sampling={},
        finish_reason="tool_calls",
        transcript_digest="d",
        next_state=[{"role": "tool", "content": "data"}],
    )
    question = question_about(turn)
    assert question.response == 'read({"path": "x"})' and question.role == "tool"


@pytest.mark.parametrize(
    ("reply", "score", "hint"),
    [
        (r"\boxed{1} [HINT_START]Use prose.[HINT_END]", 1, "Use prose."),
        (
            r"[HINT_START]a[HINT_END] \boxed{1} [HINT_START] the last counts [HINT_END]",
            1,
            "the last counts",
        ),
        (r"\boxed{-1} [HINT_START]not asked for[HINT_END]", -1, None),
        (r"\boxed{0} [HINT_START]x[HINT_END]", None, None),
        (r"\boxed{1} [HINT_START]never closed", 1, None),
        (r"\boxed{1} [HINT_START]begun [HINT_START]begun again[HINT_END]", 1, "begun again"),
        (r"\boxed{1} [HINT_START]whole[HINT_END] [HINT_START]never closed", 1, "whole"),
        (r"\boxed{1} [HINT_END] before [HINT_START]", 1, None),
        (r"\boxed{1} [HINT_START]  [HINT_END]", 1, None),
    ],
)
def test_the_last_hint_of_a_positive_vote_counts(reply: str, score: int | None, hint: str | None) -> None:
    vote = read_hint_vote(reply)
    assert (vote.score, vote.hint) == (score, hint)


def question(response: str = "7", said: str = "Thanks!") -> JudgeQuestion:
    return JudgeQuestion(
        response=response, next_state=[{"role": "user", "content": said}], role="user", messages=[]
    )


def test_a_custom_prompt_replaces_the_shipped_one_and_has_another_name(tmp_path: Path) -> None:
    (tmp_path / "eval.md").write_text(
        "Judge.\n=== user ===\n{response} | {role} | {next_state} {braces} \\boxed{}"
    )
    own, shipped = PromptSet.load(str(tmp_path)), PromptSet.load(None)
    assert own.eval.name.startswith("eval@") and own.eval.name != shipped.eval.name
    assert own.hint == shipped.hint
    messages = own.eval.messages(question("{next_state}", "{role}"))
    assert [message["content"] for message in messages] == [
        "Judge.",
        "{next_state} | user | {role} {braces} \\boxed{}",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "has neither eval.md nor hint.md"),
        ("{response} {next_state}", "needs one line `=== user ===`"),
        ("a\n=== user ===\n{response}", "has no place {next_state}"),
    ],
)
def test_an_incomplete_prompt_file_is_rejected(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "eval.md").write_text(text)
    with pytest.raises(ConfigError, match=message):
        PromptSet.load(str(tmp_path))


def test_the_middle_of_a_long_text_is_omitted() -> None:
    _, user = PromptSet.load(None).eval.messages(question("a" * 500 + "b" * 500), longest=100)
    assert "a" * 50 + "\n[... 900 characters left out ...]\n" + "b" * 50 in user["content"]
