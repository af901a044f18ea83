"""Tests the reward of an episode."""

from __future__ import annotations

import pytest

from toolcall_rl.rewards import RewardRules, answer_of, right_answer


def test_wrong_answers_score_higher_with_calls_as_in_retool() -> None:
    rules = RewardRules()
    found = [rules.score(False, calls) for calls in (0, 2, 4, 10, 16)]
    assert found == pytest.approx([-1.1, -1.0, -0.9, -0.6, -0.6])
    assert rules.score(True, 0) == rules.score(True, 9) == 1.0


def test_calls_may_have_a_price_and_the_encouragement_may_be_disabled() -> None:
    rules = RewardRules(encouragement=False, price=0.2)
    assert [rules.score(True, 0), rules.score(True, 2), rules.score(False, 1)] == pytest.approx(
        [1, 0.6, -1.2]
    )


@pytest.mark.parametrize(
    ("answer", "label", "by_math", "by_text"),
    [
        ("42", "42", True, True),
        ("42.0", "42", True, False),
        ("1,000", "1000", True, False),
        ("\\frac{1}{2}", "0.5", True, False),
        ("41", "42", False, False),
        (None, "42", False, False),
        ("9", ["7", "9"], True, True),
    ],
)
def test_answers_are_compared_by_value_or_exactly(
    answer: str | None, label: object, by_math: bool, by_text: bool
) -> None:
    assert right_answer(answer, label, "math") is by_math
    assert right_answer(answer, label, "strict") is by_text


def test_algebra_decides_if_numbers_do_not() -> None:
    assert right_answer("2x + 2", "2(x+1)", "math") and not right_answer("2x + 3", "2(x+1)", "math")


def test_the_answer_is_searched_only_in_the_last_turn() -> None:
    """Not in the prompt or in tool output, which may contain boxes too; the strict form reads the end of the turn."""
    assert answer_of("I do not know", "math") is None
    assert answer_of("\\boxed{7}" + " so" * 200, "math") == "7"
    assert answer_of("\\boxed{7}" + " so" * 200, "strict") is None
    assert answer_of("<think>\\boxed{7}</think> \\boxed{8}", "strict") == "8"
