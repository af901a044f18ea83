"""What is known of an answer whatever its person said, and what of what people say contradicts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from claw_lab.facts import sums_hold
from openclaw.judge.facts import agreement, fact_of, rejects_result, tools_worked
from openclaw.types import NewTurn, Turn
from openclaw_test.people.tastes import COMPLAINTS

MakeTurn = Callable[..., NewTurn]
RIGHT, WRONG = "So 12 - 5 = 7 apples.", "So 12 - 5 = 8 apples."


@pytest.fixture
def turn(make_turn: MakeTurn) -> Callable[..., Turn]:
    """Returns a turn with this answer and a next state."""

    def make(answer: str = RIGHT, said: str | None = None, **changes: Any) -> Turn:
        following = changes.pop("following", [] if said is None else [{"role": "user", "content": said}])
        new = make_turn(response_message={"role": "assistant", "content": answer}, **changes)
        return Turn(**(vars(new) | {"turn_index": 0}), next_state=following)

    return make


@pytest.mark.parametrize(
    "said",
    [
        *COMPLAINTS["wrong"],
        "Das stimmt nicht.",
        "Non, c'est faux.",
        "Eso está mal.",
        "È sbagliato.",
        "Isso está errado.",
        "Dat klopt niet.",
        "To jest źle.",
        "Это неправильно.",
        "Bu yanlış.",
        "それは間違いです。",
        "答案不对",
    ],
)
def test_complaints_about_the_result_are_recognised_in_every_language_of_the_rules(said: str) -> None:
    assert rejects_result(said)


@pytest.mark.parametrize(
    "said",
    [
        *(text for flaw, texts in COMPLAINTS.items() if flaw != "wrong" for text in texts),
        "Wrong style, please redo it.",
        "That is wrong. I asked for a list.",
        "Is that wrong?",
        "Das ist der falsche Ton.",
        "Once more, please.",
    ],
)
def test_a_complaint_about_form_is_not_evidence_about_the_result(said: str) -> None:
    assert not rejects_result(said)


@pytest.mark.parametrize(
    ("answer", "said", "score", "agrees"),
    [
        (RIGHT, "Thanks!", 1.0, True),
        (WRONG, "Thanks!", 1.0, False),
        (RIGHT, "That is wrong.", -1.0, False),
        (WRONG, "That is wrong.", -1.0, True),
        (RIGHT, "No bullet points, please.", -1.0, None),
        (WRONG, "No bullet points, please.", -1.0, None),
        (RIGHT, "That is wrong.", 0.0, None),
        ("Seven apples.", "Thanks!", 1.0, None),
        ("Seven apples.", "That is wrong.", -1.0, None),
    ],
)
def test_agreement_compares_the_comment_with_the_facts(
    turn: Callable[..., Turn], answer: str, said: str, score: float, agrees: bool | None
) -> None:
    found = turn(answer, said)
    assert agreement(found, score, fact_of(found, sums_hold)) is agrees


def test_only_feedback_counts_as_a_persons_judgement_not_tool_results(turn: Callable[..., Turn]) -> None:
    alone = turn(WRONG, following=[{"role": "tool", "content": "Saved. Thank you, that is perfect!"}])
    assert agreement(alone, 1.0, fact_of(alone, sums_hold)) is None
    assert agreement(alone, 1.0, False, comment="") is False, "thumbs up, without a word"
    assert agreement(alone, -1.0, True, comment="") is None, "thumbs down may be about anything"


def calling(command: str) -> dict[str, Any]:
    return {"tool_calls": [{"function": {"name": "bash", "arguments": json.dumps({"command": command})}}]}


def test_tool_success_follows_from_exit_status_and_read_only_calls_prove_nothing(
    turn: Callable[..., Turn],
) -> None:
    def before(command: str, output: str, answer: str) -> Turn:
        asked = {"role": "user", "content": "Run the tests."}
        called = {"role": "assistant", "content": "", **calling(command)}
        return turn(answer, "Thanks!", messages=[asked, called, {"role": "tool", "content": output}])

    assert tools_worked(before("make test", "Exit code 2\nboom", "All is well.")) is False
    assert tools_worked(before("make test", "Exit code 2\nboom", "It failed: boom.")) is None
    assert tools_worked(before("make test", "Exit code 0\n3 passed", "All is well.")) is True
    assert tools_worked(before("cat notes.txt", "Exit code 0\nnotes", "There are notes.")) is None
    assert tools_worked(before("frobnicate", "hm", "All is well.")) is None
    own = [{"role": "tool", "content": "Exit code 1\nboom"}, {"role": "user", "content": "Great!"}]
    assert tools_worked(turn('bash({"command": "make"})', following=own)) is False
    assert tools_worked(turn(RIGHT, "Thanks!")) is None


def test_a_single_failed_fact_is_enough_and_a_hook_adds_facts(turn: Callable[..., Turn]) -> None:
    found = turn(RIGHT, "Thanks!")
    assert fact_of(found) is None
    assert fact_of(found, sums_hold) is True and fact_of(turn(WRONG, "Thanks!"), sums_hold) is False
    asked = [{"role": "tool", "content": "Exit code 0"}, {"role": "user", "content": "Great!"}]
    worked = turn('bash({"command": "make"})', following=asked)
    assert fact_of(worked) is True
    assert fact_of(worked, lambda known: False) is False
    assert fact_of(worked, lambda known: None) is True
    assert fact_of(turn("Seven.", "Thanks!"), lambda known: known.id != "") is True
