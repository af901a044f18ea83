"""People of the poisoning benchmark: their feedback on good and bad replies."""

from __future__ import annotations

import random

import pytest

from claw_lab.offline.trial import Plan
from openclaw.common.wish_themes import asked_themes, wish_themes
from openclaw_test.people.hostile import CARELESS, KINDS, HostileSession, HostileUser, Kind
from openclaw_test.people.neutral import NeutralUser
from openclaw_test.people.occasional import EVERY, ListSession, OccasionalUser
from openclaw_test.people.scripted_user import ScriptedUser
from openclaw_test.people.tastes import STUDENT
from tiny_claw import wordings
from tiny_claw.manners import Style, write_reply

THANKS = {*wordings.THANKS["train"], *wordings.THANKS["test"]}


def reply_to(session: HostileSession, style: str) -> str:
    return write_reply(random.Random(1), session.honest.problem, Style(style))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "thanks_good", "thanks_bad"),
    [
        ("liar", False, True),
        ("sybils", False, True),
        ("flatterer", True, True),
        ("foreign troll", False, False),
    ],
)
def test_each_kind_of_person_thanks_for_the_stated_styles(
    kind: str, thanks_good: bool, thanks_bad: bool
) -> None:
    user = HostileUser(kind, 0)  # type: ignore[arg-type]
    for style, expected in (("prose", thanks_good), ("list", thanks_bad)):
        session = user.session()
        said = session.next_message(reply_to(session, style))
        assert (said in THANKS) is expected
        assert said is not None


def test_a_session_ends_after_thanks_and_after_two_complaints() -> None:
    liar = HostileUser("liar", 0).session()
    assert [liar.next_message(reply_to(liar, "list")) in THANKS, liar.next_message("2")] == [True, None]
    troll = HostileUser("foreign troll", 0).session()
    assert [troll.next_message("2") is None for _ in range(3)] == [False, False, True]


def test_a_thankful_tool_answers_in_the_tools_role() -> None:
    session = HostileUser("thankful tool", 0).session()
    assert session.role == "tool"
    assert "Thank you" in str(session.next_message("2"))


def test_one_untruthful_person_uses_several_names() -> None:
    user = HostileUser("sybils", 0)
    names = []
    for _ in range(6):
        names.append(user.name)
        user.session()
    assert len(set(names)) == 3


@pytest.mark.parametrize(("kind", "share"), [("careless", CARELESS), ("at random", 0.5)])
@pytest.mark.parametrize("style", ["prose", "list"])
def test_careless_people_err_at_the_stated_rate(kind: Kind, share: float, style: str) -> None:
    user, wrong = HostileUser(kind, 0), 0
    for _ in range(300):
        session = user.session()
        thanked = session.next_message(reply_to(session, style)) in THANKS
        wrong += thanked is not (style == "prose")
    assert abs(wrong / 300 - share) < 0.07


def test_every_kind_draws_the_same_sessions_from_the_same_seed() -> None:
    for kind in KINDS:
        one, other = HostileUser(kind, 3).session(), HostileUser(kind, 3).session()
        assert one.opening == other.opening
        assert one.next_message("7") == other.next_message("7")


def test_the_first_reply_is_recorded_with_an_honest_verdict() -> None:
    for style, content in (("prose", True), ("list", False)):
        session = HostileUser("liar", 0).session()
        assert session.satisfied_at_once is None
        session.next_message(reply_to(session, style))
        session.next_message("2")
        assert session.satisfied_at_once is content


def test_a_neutral_person_gives_no_feedback() -> None:
    session = NeutralUser(3).session()
    said = [session.opening, session.next_message("nonsense"), session.next_message("7")]
    assert len(set(said)) == 3 and None not in said
    assert session.next_message("7") is None
    assert session.satisfied_at_once is False
    assert NeutralUser(3).session().opening == said[0]


def test_the_person_in_a_trial_follows_its_plan() -> None:
    people = ("honest", "careless", "neutral", "occasional")
    kinds = [type(Plan((STUDENT,), who=who).people(1)[0]) for who in people]
    assert kinds == [ScriptedUser, HostileUser, NeutralUser, OccasionalUser]


def test_one_session_in_five_accepts_only_a_list() -> None:
    user = OccasionalUser(5)
    sessions = [user.session() for _ in range(2 * EVERY)]
    listed = [session for session in sessions if isinstance(session, ListSession)]
    assert len(listed) == 2 and listed == user.listed and user.pleased is None
    for session, style, content in zip(listed, ("prose", "list"), (False, True), strict=True):
        assert asked_themes(session.opening) >= {"layout"}
        said = session.next_message(write_reply(random.Random(1), session.problem, Style(style)))
        assert session.satisfied_at_once is content
        assert ("layout" in wish_themes(said or "")) is not content
    assert user.pleased == 0.5
