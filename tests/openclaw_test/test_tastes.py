import random

import pytest

from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import RulesBackend, vote_by_rules
from openclaw_test.people.scripted_user import ScriptedUser
from openclaw_test.people.tastes import (
    ASSISTANT,
    BRIEF,
    BY_NAME,
    CHEERFUL_LISTER,
    COMPLAINTS,
    COUNTER,
    DASHER,
    OPPOSITES,
    STUDENT,
    TEACHER,
    complaint,
    has_dashes,
)
from tiny_claw.detectors import visible
from tiny_claw.manners import Style, write_reply
from tiny_claw.problems import Problem, Step

APPLES = Problem(
    "Tom has 12 apples and buys 5 more.", "add", (Step(12, "+", 5),), "Tom", "he", "apples", actions=("buys",)
)
PROSE = "Tom starts with 12 apples. Then he buys 5 more, so 12 + 5 = 17. That makes 17 apples."
SHORT = "Since 12 + 5 = 17, Tom now has 17 apples."
LIST = "1. **Add:** 12 + 5 = 17\n\n**Answer: 17 apples**"
DASHES = "- **Add:** 12 + 5 = 17\n\n**Answer: 17 apples**"


def question(reply: str, said: str) -> JudgeQuestion:
    asked = [{"role": "user", "content": APPLES.text}]
    return JudgeQuestion(
        response=reply, next_state=[{"role": "user", "content": said}], role="user", messages=asked
    )


@pytest.mark.parametrize(
    ("reply", "student", "assistant", "teacher", "dasher"),
    [
        (PROSE, (), (), ("cold",), ("no dashes",)),
        (f"Happy to help! {PROSE}", (), (), (), ("no dashes",)),
        (SHORT, (), ("short",), ("cold",), ("no dashes",)),
        (f"Nice one, let's solve it! {SHORT}", (), ("short",), (), ("no dashes",)),
        (LIST, ("formatted",), ("formatted",), ("formatted", "cold"), ("no dashes",)),
        (f"{LIST}\n\nYou can do this!", ("formatted",), ("formatted",), ("formatted",), ("no dashes",)),
        (DASHES, ("formatted",), ("formatted",), ("formatted", "cold"), ()),
        (DASHES.replace("17", "18"), ("formatted",), ("formatted",), ("formatted", "cold"), ("wrong",)),
        ("12 + 5 = 17", ("lost steps",), ("lost steps",), ("cold",), ("no dashes",)),
    ],
)
def test_each_person_criticises_something_different(
    reply: str, student: object, assistant: object, teacher: object, dasher: object
) -> None:
    found = [taste.flaws(APPLES, reply) for taste in (STUDENT, ASSISTANT, TEACHER, DASHER)]
    assert found == [student, assistant, teacher, dasher]


@pytest.mark.parametrize(
    ("reply", "brief", "lister", "counter"),
    [
        (PROSE, ("long",), ("unlisted", "cold"), ("not the number",)),
        (SHORT, (), ("unlisted", "cold"), ("not the number",)),
        (f"Happy to help! {SHORT}", (), ("unlisted",), ("not the number",)),
        (LIST, ("long",), ("cold",), ("not the number",)),
        (f"{LIST}\n\nYou can do this!", ("long",), (), ("not the number",)),
        ("17 apples", ("lost steps",), ("unlisted", "cold"), ()),
        ("18", ("wrong",), ("unlisted", "cold"), ("wrong",)),
    ],
)
def test_people_with_opposite_preferences_judge_replies_differently(
    reply: str, brief: object, lister: object, counter: object
) -> None:
    assert [taste.flaws(APPLES, reply) for taste in (BRIEF, CHEERFUL_LISTER, COUNTER)] == [
        brief,
        lister,
        counter,
    ]


def test_no_reply_of_the_recipe_pleases_three_of_the_opposite_people() -> None:
    rng, styles = (
        random.Random(0),
        [("prose", "cold"), ("prose", "warm"), ("list", "cold"), ("list", "warm"), ("bare", "cold")],
    )
    pleased: set[str] = set()
    for manner, tone in styles:
        for short in (False, True):
            reply = visible(write_reply(rng, APPLES, Style(manner, tone, short)))
            glad = {taste.name for taste in OPPOSITES if taste.is_content(APPLES, reply)}
            assert len(glad) < 3
            pleased |= glad
    assert pleased == {taste.name for taste in OPPOSITES}


def test_texts_of_the_recipe_have_their_stated_style() -> None:
    rng = random.Random(0)
    for _ in range(50):
        assert ASSISTANT.is_content(APPLES, write_reply(rng, APPLES, Style("prose")))
        assert not ASSISTANT.is_content(APPLES, write_reply(rng, APPLES, Style("prose", short=True)))
        assert TEACHER.is_content(APPLES, write_reply(rng, APPLES, Style("prose", "warm")))
        listed = write_reply(rng, APPLES, Style("list"))
        assert DASHER.is_content(APPLES, listed) == has_dashes(listed)


def test_several_flaws_are_criticised_in_one_message() -> None:
    text = complaint(random.Random(0), ("formatted", "cold"))
    assert any(text.startswith(known) for known in COMPLAINTS["formatted"])
    assert any(text.endswith(known) for known in COMPLAINTS["cold"])


async def test_the_rules_judge_recognises_every_complaint_and_its_hint() -> None:
    for flaw, texts in COMPLAINTS.items():
        hints = 0
        for text in texts:
            asked = question(LIST, text)
            assert vote_by_rules(asked).score == -1, text
            (vote,) = await RulesBackend().hint_votes(asked, 1)
            hints += vote.hint is not None
        assert hints == 0 if flaw == "wrong" else hints >= len(texts) * 0.8, (flaw, hints)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_person_of_each_taste_complains_until_satisfied(name: str) -> None:
    replies = dict.fromkeys(("student", "TA", "own words"), PROSE)
    replies |= {"teacher": f"Great question! {PROSE}", "dasher": DASHES, "brief": SHORT, "counter": "17"}
    replies["cheerful lister"] = f"{LIST}\n\nYou can do this!"
    session = ScriptedUser(3, taste=BY_NAME[name], continue_probability=0.0).session()
    session.problem = APPLES
    assert session.next_message("**Solution**\n\n1. **Add:** 12 + 5 = 17") is not None
    assert session.satisfied_at_once is False
    session.next_message(replies[name])
    assert session.attempts[-1].satisfies
    assert session.next_message("You're welcome!") is None
