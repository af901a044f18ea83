"""Which sides of an answer's form a text speaks of, in the languages that the rules judge reads."""

from __future__ import annotations

import random

import pytest

from openclaw.common.wish_themes import share_a_theme, themes_of
from openclaw_test.people.wishes import wordings
from tiny_claw.dialogues import ask
from tiny_claw.problems import random_problem


@pytest.mark.parametrize(
    ("text", "themes"),
    [
        ("Use bullet points.", {"layout"}),
        ("I asked for a numbered list!", {"layout"}),
        ("Keep it brief.", {"length"}),
        ("Just the number, please.", {"layout", "length"}),
        ("The final answer and nothing else.", {"layout", "length"}),
        ("Be kind: use a warm, friendly tone.", {"tone"}),
        ("Bitte als Stichpunkte, und freundlicher.", {"layout", "tone"}),
        ("Nur das Ergebnis.", {"layout", "length"}),
        ("Respuesta corta, con viñetas.", {"layout"}),
        ("Réponds avec une liste à puces, plus détaillée.", {"layout"}),
        ("Più dettagli, senza elenco.", {"layout", "length"}),
        ("Короткий список, пожалуйста.", {"layout", "length"}),
        ("请用列表回答，简短一点", {"layout", "length"}),
        ("箇条書きで短くお願いします", {"layout", "length"}),
        ("What kind of apples are on the tablet?", set()),
        ("Tom has 3 stones tonight. How many tons is that?", set()),
    ],
)
def test_what_a_text_speaks_of(text: str, themes: set[str]) -> None:
    assert themes_of(text) >= themes if themes else not themes_of(text)


def test_ordinary_questions_speak_of_no_form() -> None:
    rng = random.Random(0)
    assert not [
        text for text in (ask(rng, random_problem(rng, "train")) for _ in range(300)) if themes_of(text)
    ]


def test_a_request_for_a_list_and_a_complaint_that_repeats_it_are_about_the_same() -> None:
    words = wordings()["search"]["list"]
    pairs = [(asked, said) for asked in words["asked"] for said in words["complaint"]]
    assert sum(share_a_theme(f"Ann has 3 pears. {asked}", said) for asked, said in pairs) > 0.9 * len(pairs)


def test_only_the_end_of_a_long_text_is_read() -> None:
    assert not themes_of("as a list " + "word " * 2000)
    assert themes_of("word " * 2000 + "as a list")
