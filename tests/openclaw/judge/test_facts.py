"""What is known of an answer whatever its person said, and what of what people say contradicts it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from openclaw.judge.arithmetic import arithmetic_holds, claims_in
from openclaw.judge.facts import agreement, fact_of, tools_worked
from openclaw.judge.rules.results import rejects_result
from openclaw.types import NewTurn, Turn
from openclaw_test.people.tastes import COMPLAINTS

MakeTurn = Callable[..., NewTurn]
RIGHT, WRONG = "So 12 - 5 = 7 apples.", "So 12 - 5 = 8 apples."


@pytest.fixture
def turn(make_turn: MakeTurn) -> Callable[..., Turn]:
    """A turn with this answer, and what followed it."""

    def make(answer: str = RIGHT, said: str | None = None, **changes: Any) -> Turn:
        following = changes.pop("following", [] if said is None else [{"role": "user", "content": said}])
        new = make_turn(response_message={"role": "assistant", "content": answer}, **changes)
        return Turn(**(vars(new) | {"turn_index": 0}), next_state=following)

    return make


@pytest.mark.parametrize(
    "text",
    [
        "12 - 5 = 7 apples",
        "12 apples - 5 apples = 7 apples",
        "3 boys + 4 girls = 7 children",
        "3 + 4 = 7, 7 * 2 = 14",
        "500 + 500 = 1,000",
        "1000000 * 3 = 3,000,000",
        "0.1 + 0.2 = 0.3",
        "2,5 + 2,5 = 5",
        "1/2 + 1/4 = 3/4",
        "10 / 3 = 3.33",
        "2/3 = 0.66",
        "22 / 7 ≈ 3.14",
        "15 / 60 = 25%",
        "(3 + 4) × 2 = 14",
        "3 + 4 × 2 = 11",
        "5 - 10 = -5",
        "-5 + 3 = -2",
        "8 ÷ 2 = 4",
        "7 – 2 = 5",
        "3x4=12",
        "10 = 4 + 6",
        "2 + 3 = 5 + 4 = 9",
        "x = 3 + 4 = 7",
        "$5.50 + $3 = $8.50",
        "60 km / 2 h = 30 km/h",
        r"\(3 \times 4 = 12\)",
        "1. **Add:** 34 + 15 = 49",
        "- 3 + 4 = 7",
        "3 + 4 = 7!",
        "5 + 3 = 9. Wait, 5 + 3 = 8.",
    ],
)
def test_sums_that_hold(text: str) -> None:
    assert arithmetic_holds(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "12 - 5 = 8 apples",
        "12 apples - 5 apples = 8 apples",
        "3 + 4 = 7, 7 * 2 = 15",
        "500 + 500 = 1,001",
        "0.1 + 0.2 = 0.4",
        "1/2 + 1/4 = 2/6",
        "10/4 = 3.5",
        "1/3 + 1/3 = 0.65",
        "22 / 7 ≈ 5",
        "3 + 4 × 2 = 14",
        "-5 + 3 = 2",
        "12-5=8",
        "10 = 4 + 7",
        "2 + 3 = 5 + 4 = 10",
        "1) 3 + 4 = 8",
        "3 x 4 = 13",
        "$3 \\times 4 = 13$",
        "5 + 3 = 8. No, 5 + 3 = 9.",
        "25 + 17 = 41 dollars",
    ],
)
def test_sums_that_do_not_hold(text: str) -> None:
    assert arithmetic_holds(text) is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The answer is 42.",
        "= 1,000",
        "10 / 3 = 3",  # rounded, or with a remainder that is not told
        "10 / 3 = 3 remainder 1",
        "pages 5-10 = 6 pages",
        "2024-05-03 = 3 May",
        "version 1.2.3 - 1 = 2",
        "192.168.0.1 - 1 = 3",
        "10:30 + 2 = 12:30",
        "```\nx = 3 + 4 = 8\n```",
        "<think>2 + 2 = 5</think> 4",
        "3 + 4 == 8",
        "3 + 4 != 8",
        "3 + 4 <= 8",
        "2x + 3 = 7",
        "x + 3 + 4 = 10",
        "3 + x = 7",
        "f(3) + 4 = 7",
        "2^3 + 1 = 9",
        "√16 + 2 = 6",
        "5² + 1 = 26",
        "3! + 1 = 7",
        "2 1/2 + 1 = 3 1/2",
        "1 hour - 20 minutes = 40 minutes",
        "30 + 30 = 1 hour",
        "50 + 10% = 55",
        "5 / 0 = 0",
        "500 + 500 = 1.000",  # of thousands, or a one
        "500 + 500 = 1 000",
        "It is not true that 2 + 2 = 5.",
    ],
)
def test_what_only_resembles_a_sum_tells_nothing(text: str) -> None:
    assert arithmetic_holds(text) is None


def test_any_sum_is_read_as_python_counts_it() -> None:
    rng = random.Random(7)
    for _ in range(300):
        numbers = [rng.randint(1, 99) for _ in range(rng.randint(2, 4))]
        signs = [rng.choice("+-*") for _ in numbers[1:]]
        left = str(numbers[0]) + "".join(
            f" {sign} {number}" for sign, number in zip(signs, numbers[1:], strict=True)
        )
        value = eval(left)
        assert arithmetic_holds(f"So {left} = {value:,} coins.") is True, left
        assert arithmetic_holds(f"So {left} = {value + rng.choice((-3, 1, 2)):,} coins.") is False, left


@pytest.mark.parametrize(
    "text",
    [
        "(" * 9_000,
        "1+" * 5_000 + "(",
        "(1+1)*" * 3_000,
        "1/3+1/7+" * 2_000,
        "9" * 9_000 + "+1=2",
        "1=" * 9_000,
    ],
)
def test_hostile_texts_cost_little(text: str) -> None:
    began = time.process_time()
    claims_in(text)
    assert time.process_time() - began < 2


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
def test_a_complaint_about_the_result_in_every_language_of_the_rules(said: str) -> None:
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
def test_a_complaint_about_form_says_nothing_about_the_result(said: str) -> None:
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
def test_what_contradicts_what(
    turn: Callable[..., Turn], answer: str, said: str, score: float, agrees: bool | None
) -> None:
    found = turn(answer, said)
    assert agreement(found, score, fact_of(found)) is agrees


def test_what_a_tool_says_is_nobodys_word_and_feedback_is(turn: Callable[..., Turn]) -> None:
    alone = turn(WRONG, following=[{"role": "tool", "content": "Saved. Thank you, that is perfect!"}])
    assert agreement(alone, 1.0, fact_of(alone)) is None
    assert agreement(alone, 1.0, False, said="") is False, "thumbs up, without a word"
    assert agreement(alone, -1.0, True, said="") is None, "thumbs down may be about anything"


def calling(command: str) -> dict[str, Any]:
    return {"tool_calls": [{"function": {"name": "bash", "arguments": json.dumps({"command": command})}}]}


def test_tools_tell_by_their_exit_status_and_looking_proves_nothing(turn: Callable[..., Turn]) -> None:
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


def test_one_fact_that_fails_is_enough_and_a_hook_may_know_more(turn: Callable[..., Turn]) -> None:
    found = turn(RIGHT, "Thanks!")
    assert fact_of(found) is True
    assert fact_of(found, lambda known: False) is False
    assert fact_of(found, lambda known: None) is True
    assert fact_of(turn("Seven.", "Thanks!"), lambda known: known.id != "") is True
