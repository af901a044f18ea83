import random

import pytest

from tiny_claw import detectors
from tiny_claw.manners import Style, write_reply
from tiny_claw.problems import Problem, Step, random_problem

APPLES = Problem("Tom has 12 apples and buys 5 more.", "add", (Step(12, "+", 5),), "Tom", "he", "apples")
PROSE = "Tom has 12 apples and gets 5 more, so 12 + 5 = 17. That makes 17 apples."


@pytest.mark.parametrize(
    ("reply", "manner"),
    [
        (PROSE, "prose"),
        ("**Answer:** 17", "list"),
        ("1. We add 12 + 5 = 17\n2. So there are 17.", "list"),
        ("- 12 + 5 = 17", "list"),
        ("## Solution\nTom has seventeen, that is 17 apples now.", "list"),
        ("Final answer: 17", "list"),
        ("17", "bare"),
        ("17 apples", "bare"),
        ("12 + 5 = 17", "bare"),
        ("I do not know that.", "other"),
        ("", "other"),
    ],
)
def test_the_style_of_a_reply_is_detected(reply: str, manner: str) -> None:
    assert detectors.manner(reply) == manner


def test_plain_prose_with_right_steps_satisfies() -> None:
    assert detectors.satisfies(APPLES, PROSE)


@pytest.mark.parametrize(
    "reply",
    [
        PROSE.replace("12 + 5 = 17", "**12 + 5 = 17**"),
        PROSE.replace("12 + 5 = 17", "12 + 5 = 18"),
        "Tom gets 5 more, so now he has 17 apples.",
        "Tom has 12 apples and gets 5 more, so 12 + 5 = 17. That makes 18 apples.",
        "17",
    ],
)
def test_formatting_missing_steps_and_errors_do_not_satisfy(reply: str) -> None:
    assert not detectors.satisfies(APPLES, reply)


def test_reasoning_is_not_part_of_the_visible_reply() -> None:
    reply = "<think>\n1. **12 + 5 = 17**\n</think>\n\n17"
    assert detectors.visible(reply) == "17"
    assert detectors.manner(reply) == "bare"
    assert detectors.visible("<think>\nnever closed 17") == ""


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("12 + 5 - 3 = 14", True),
        ("2 + 3 x 4 = 14", True),
        ("5 plus 3 is 8", True),
        ("20 minus 4 leaves 15", False),
        ("6 × 7 = 42", True),
        ("48 / 2 = 24", True),
        ("1 / 0 = 1", False),
        ("1,200 + 300 = 1,500", True),
        ("$2.50 * 4 = $10", True),
        ("10 / 3 = 3.33", True),
    ],
)
def test_equations_in_any_models_format_are_parsed(text: str, holds: bool) -> None:
    (equation,) = detectors.equations(f"So {text}.")
    assert equation.holds is holds


def test_a_chained_equation_counts_as_all_its_steps() -> None:
    problem = Problem("", "two-step", (Step(12, "+", 5), Step(17, "-", 3)))
    assert detectors.keeps_steps(problem, "That is 12 + 5 - 3 = 14.")
    assert not detectors.keeps_steps(problem, "First 12 + 5 = 17, so 14 are left.")


def test_every_example_reply_is_classified_correctly() -> None:
    rng = random.Random(3)
    for _ in range(300):
        problem = random_problem(rng)
        style = Style(rng.choice(("list", "prose", "bare")), rng.choice(("warm", "cold")), rng.random() < 0.5)
        verdict = detectors.judge(problem, write_reply(rng, problem, style))
        assert verdict.manner == style.manner
        assert verdict.right
        assert style.manner == "bare" or (verdict.tone == style.tone and verdict.steps_kept)
        assert verdict.satisfies == (style.manner == "prose")
