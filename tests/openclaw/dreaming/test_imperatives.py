"""A plain sentence takes the place of a complaint only where it is sure what the complaint asks for."""

from __future__ import annotations

import pytest

from openclaw.dreaming.imperatives import all_imperatives, asked_pole, imperatives
from openclaw_test.people.everyday_talk import read_talk

LONG, SHORT = "word " * 80, "It is red."
LIST = "Here are some:\n- one thing\n- another thing\n- a third " + "word " * 60


@pytest.mark.parametrize(
    ("wish", "answer", "pole"),
    [
        ("way too long my guy", LONG, "short"),
        ("Too long.", SHORT, None),
        ("Please explain it in much more detail.", SHORT, None),
        ("Zu lang, bitte kürzer.", SHORT, None),
        ("No bullet points, please.", LIST, "prose"),
        ("No bullet points, please.", LONG, None),
        ("One paragraph at most.", LIST, None),
        ("Give me more detail", LONG, None),
        ("再详细一点", LONG, None),
        ("Greet me first.", LONG, None),
        ("That is wrong, it was in 1492.", LONG, None),
    ],
)
def test_what_a_complaint_asks_for_follows_from_its_theme_and_the_answer(
    wish: str, answer: str, pole: str | None
) -> None:
    assert asked_pole(wish, answer) == pole


@pytest.mark.parametrize(
    ("kind", "answer", "right", "least"),
    [
        ("brief", LONG, "short", 8),
        ("brief", LIST, "short", 8),
        ("prose", LIST, "prose", 18),
        ("greeting", LONG, None, 0),
        ("greeting", LIST, None, 0),
        ("thanks", LIST, None, 0),
    ],
)
def test_of_four_writers_no_complaint_is_taken_for_another(
    kind: str, answer: str, right: str | None, least: int
) -> None:
    found = [asked_pole(line.text, answer) for line in read_talk(kind)]  # type: ignore[arg-type]
    assert set(found) <= {right, None} and sum(one is not None for one in found) >= least


def test_each_pole_has_sentences_in_ten_languages_and_english_stands_in() -> None:
    assert imperatives("short", "de") != imperatives("short", "en") == imperatives("short", "xx")
    assert len(set(all_imperatives())) == len(all_imperatives()) >= 40
