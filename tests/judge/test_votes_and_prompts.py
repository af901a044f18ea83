from __future__ import annotations

import pytest

from openclaw.errors import ConfigError
from openclaw.judge.backends import make_backend
from openclaw.judge.prompts import eval_messages, read_eval_vote
from openclaw.judge.questions import JudgeQuestion, question_about
from openclaw.judge.votes import majority_score
from openclaw.records import Turn, Vote


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


def test_a_judge_model_sees_the_reply_and_the_next_state_with_its_role() -> None:
    question = JudgeQuestion(
        response="it is {7}", next_state=[{"role": "tool", "content": "exit 1"}], role="tool", messages=[]
    )
    system, user = eval_messages(question)
    assert system["role"] == "system" and user["role"] == "user"
    assert "it is {7}" in user["content"] and "role: tool" in user["content"] and "exit 1" in user["content"]


def test_a_tool_call_is_part_of_the_reply_that_is_judged() -> None:
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


def test_an_unknown_backend_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(ConfigError, match="unknown judge backend 'oracle': choose one of rules"):
        make_backend("oracle")
