import random

import pytest

from openclaw.judge.rules.english import read_feedback
from openclaw_test.people.scripted_user import ScriptedUser, complaint, find_flaw, thanks
from tiny_claw import wordings
from tiny_claw.manners import Style, write_reply
from tiny_claw.problems import Problem, Step, random_problem

APPLES = Problem("Tom has 12 apples and buys 5 more.", "add", (Step(12, "+", 5),), "Tom", "he", "apples")


def reply(problem: Problem, manner: str) -> str:
    return write_reply(random.Random(0), problem, Style(manner))  # type: ignore[arg-type]


def test_a_good_reply_is_thanked_and_the_session_ends() -> None:
    session = ScriptedUser(seed=1, continue_probability=0.0).session()
    assert session.problem.text in session.opening
    message = session.next_message(reply(session.problem, "prose"))
    assert message in wordings.THANKS["train"] + wordings.THANKS["test"]
    assert session.next_message("You're welcome!") is None
    assert session.satisfied_at_once is True


def test_after_two_different_complaints_the_student_stops_at_the_third_formatted_reply() -> None:
    session = ScriptedUser(seed=2).session()
    said = [session.next_message(reply(session.problem, "list")) for _ in range(3)]
    known = wordings.MANNER_COMPLAINTS["prose"]["train"] + wordings.MANNER_COMPLAINTS["prose"]["test"]
    assert said[0] in known
    assert said[1] in known
    assert said[0] != said[1]
    assert said[2] is None
    assert session.satisfied_at_once is False
    assert [attempt.number for attempt in session.attempts] == [1, 2, 3]


def test_a_student_continues_with_the_next_problem_after_thanks() -> None:
    session = ScriptedUser(seed=3, continue_probability=0.99).session()
    first = session.problem
    session.next_message(reply(first, "prose"))
    message = session.next_message("You're welcome!")
    assert message is not None
    assert session.problem != first
    assert session.problem.text in message


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("**Answer:** 17", "formatted"),
        ("17", "lost steps"),
        ("Now Tom has a lot, it is 17 apples.", "lost steps"),
        ("Tom gets 5 more, so 12 + 5 = 18. That makes 18 apples.", "wrong"),
        ("19", "wrong"),
        ("Sorry, I only know arithmetic homework.", "wrong"),
        ("Tom gets 5 more, so 12 + 5 = 17. That makes 17 apples.", None),
    ],
)
def test_the_complaint_describes_the_flaw(text: str, flaw: str | None) -> None:
    assert find_flaw(APPLES, text) == flaw


def test_the_same_seed_gives_the_same_sessions() -> None:
    one, two = ScriptedUser(seed=9), ScriptedUser(seed=9)
    assert [one.session().opening for _ in range(5)] == [two.session().opening for _ in range(5)]


def test_complaints_and_thanks_come_in_many_wordings() -> None:
    rng = random.Random(5)
    assert len({complaint(rng, "formatted") for _ in range(400)}) >= 20
    assert len({thanks(rng) for _ in range(400)}) >= 15
    every = [complaint(rng, "wrong", used=wordings.WRONG_RESULT_COMPLAINTS["train"]) for _ in range(20)]
    assert set(every) <= set(wordings.WRONG_RESULT_COMPLAINTS["test"])


def test_the_rules_judge_classifies_complaints_thanks_and_problems_correctly() -> None:
    complaints = (
        wordings.MANNER_COMPLAINTS["prose"],
        wordings.LOST_STEPS_COMPLAINTS,
        wordings.WRONG_RESULT_COMPLAINTS,
    )
    for table in complaints:
        assert {read_feedback(text)[0] for text in table["train"] + table["test"]} == {-1}
    assert {read_feedback(text)[0] for text in wordings.THANKS["train"] + wordings.THANKS["test"]} == {1}
    user = ScriptedUser(seed=4)
    assert {read_feedback(user.session().opening)[0] for _ in range(200)} == {0}


def test_problems_come_from_the_training_split() -> None:
    user = ScriptedUser(seed=11)
    known = random_problem(random.Random(1))
    assert all(user.session().problem.text != known.text for _ in range(3))


def test_impossible_settings_are_rejected() -> None:
    with pytest.raises(ValueError, match="max_tries"):
        ScriptedUser(seed=0, max_tries=0)
