"""Sums as facts: correct ones, wrong ones, and texts that only resemble a sum."""

from __future__ import annotations

import random
import time

import pytest

from claw_lab.facts.arithmetic import arithmetic_holds, claims_in


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
def test_correct_sums_are_accepted(text: str) -> None:
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
def test_wrong_sums_are_detected(text: str) -> None:
    assert arithmetic_holds(text) is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The answer is 42.",
        "= 1,000",
        "10 / 3 = 3",  # rounded, or with an unstated remainder
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
        "500 + 500 = 1.000",  # a thousands separator, or a decimal one
        "500 + 500 = 1 000",
        "It is not true that 2 + 2 = 5.",
    ],
)
def test_text_that_only_resembles_a_sum_is_no_evidence(text: str) -> None:
    assert arithmetic_holds(text) is None


def test_any_sum_is_evaluated_like_in_python() -> None:
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
def test_adversarial_texts_are_parsed_in_linear_time(text: str) -> None:
    began = time.process_time()
    claims_in(text)
    assert time.process_time() - began < 2
