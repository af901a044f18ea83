"""A plain sentence takes the place of a complaint only where it is sure what the complaint asks for."""

from __future__ import annotations

import pytest

from openclaw.common.plain_sentences import all_plain_sentences, plain_sentences
from openclaw.dreaming.imperatives import asked_pole
from openclaw_test.people.everyday_talk import Kind, read_talk

MIDDLE = "The tide comes in twice a day because the moon pulls at the sea, and so it goes on."
LONG, SHORT = "word " * 80, "It is red."
LIST = "Here are some:\n- one thing\n- another thing\n- a third " + "word " * 60


@pytest.mark.parametrize(
    ("wish", "answer", "pole"),
    [
        ("way too long my guy", LONG, "short"),
        ("Too long.", SHORT, None),
        ("Please explain it in much more detail.", SHORT, "long"),
        ("Zu lang, bitte kürzer.", SHORT, None),
        ("No bullet points, please.", LIST, "prose"),
        ("No bullet points, please.", LONG, None),
        ("One paragraph at most.", LIST, "short"),
        ("the third paragraph is where I gave up", LIST, None),
        ("the third paragraph is where I gave up", LONG, None),
        (f"{plain_sentences('prose', 'en')[0]} the third paragraph is where I gave up", LONG, None),
        (f"{plain_sentences('prose', 'en')[0]} no dots", LIST, "prose"),
        ("Give me more detail", LONG, None),
        ("再详细一点", LONG, None),
        ("Greet me first.", LONG, "greet"),
        ("Skip the greeting, please.", f"Hello! {LONG}", "no_greeting"),
        ("Skip the greeting, please.", LONG, None),
        ("That is wrong, it was in 1492.", LONG, None),
    ],
)
def test_the_requested_form_follows_from_a_complaints_theme_and_the_answer(
    wish: str, answer: str, pole: str | None
) -> None:
    assert asked_pole(wish, answer) == pole


@pytest.mark.parametrize(
    ("kind", "answer", "right", "least"),
    [
        ("brief", LONG, "short", 30),
        ("brief", LIST, "short", 30),
        ("prose", LIST, "prose", 25),
        ("greeting", LONG, "greet", 29),
        ("greeting", LIST, "greet", 29),
        ("thanks", LIST, None, 0),
    ],
)
def test_the_rule_is_never_wrong_about_the_writers_that_it_was_made_from(
    kind: Kind, answer: str, right: str | None, least: int
) -> None:
    found = [asked_pole(line.text, answer) for line in read_talk(kind) if line.writer in "ABCD"]
    assert set(found) <= {right, None} and sum(one is not None for one in found) >= least


@pytest.mark.parametrize(
    ("kind", "answer", "right", "known", "wrong"),
    [
        ("brief", LONG, "short", 38, 0),
        ("brief", LIST, "short", 38, 1),
        ("prose", LIST, "prose", 48, 0),
        ("greeting", LONG, "greet", 34, 0),
        ("greeting", LIST, "greet", 34, 1),
        ("list", LONG, "list", 5, 2),
        ("long", MIDDLE, "long", 15, 0),
        ("long", LONG, "long", 0, 7),
        ("thanks", LIST, None, 0, 0),
        ("vague", LIST, None, 0, 0),
        ("wrong", LONG, None, 0, 0),
        ("tone", LONG, None, 0, 4),
    ],
)
def test_the_rule_is_seldom_wrong_about_held_out_writers(
    kind: Kind, answer: str, right: str | None, known: int, wrong: int
) -> None:
    found = [asked_pole(line.text, answer) for line in read_talk(kind) if line.writer not in "ABCD"]
    sure = [one for one in found if one is not None]
    assert sum(one == right for one in sure) >= known and sum(one != right for one in sure) <= wrong


def test_each_pole_has_sentences_in_ten_languages_and_english_is_the_fallback() -> None:
    assert plain_sentences("short", "de") != plain_sentences("short", "en") == plain_sentences("short", "xx")
    assert len(set(all_plain_sentences())) == len(all_plain_sentences()) >= 40
