"""Which sides of an answer's form a text speaks of, in the languages that the rules judge reads."""

from __future__ import annotations

import random

import pytest

from openclaw.common.wish_themes import asked_themes, gives_way, repeats, wish_themes
from openclaw_test.people.wishes import wordings
from tiny_claw.dialogues import ask
from tiny_claw.problems import random_problem

LAYOUT, LENGTH, TONE = {"layout"}, {"length"}, {"tone"}


@pytest.mark.parametrize(
    ("text", "themes"),
    [
        ("What is in Rome? Use bullet points.", LAYOUT),
        ("As a numbered list, please.", LAYOUT),
        ("Itemize it.", LAYOUT),
        ("Give me a table.", LAYOUT),
        ("Write plain sentences.", LAYOUT),
        ("Explain DNS in detail.", LENGTH),
        ("Keep it short.", LENGTH),
        ("Just the number, please.", LAYOUT | LENGTH),
        ("Only give me the final answer.", LAYOUT | LENGTH),
        ("Please be kind to my son, he is 7.", TONE),
        ("Use a friendly tone.", TONE),
        ("Bitte als nummerierte Liste, und freundlich.", LAYOUT | TONE),
        ("Nur das Ergebnis.", LAYOUT | LENGTH),
        ("Más corta, con viñetas.", LAYOUT | LENGTH),
        ("Réponds avec des puces, en une phrase.", LAYOUT | LENGTH),
        ("Rispondi brevemente, senza elenchi.", LAYOUT | LENGTH),
        ("Em uma frase, sem listas.", LAYOUT | LENGTH),
        ("Graag korter, als lijst: korter graag.", LAYOUT | LENGTH),
        ("Proszę krótko, w punktach.", LAYOUT | LENGTH),
        ("Кратко, по пунктам.", LAYOUT | LENGTH),
        ("Kısaca, madde madde yaz.", LAYOUT | LENGTH),
        ("请用列表回答，简短一点", LAYOUT | LENGTH),
        ("箇条書きで短くお願いします", LAYOUT | LENGTH),
    ],
)
def test_what_a_request_asks_for_in_so_many_words(text: str, themes: set[str]) -> None:
    assert asked_themes(text) == themes


@pytest.mark.parametrize(
    "text",
    [
        "How long does it take to boil an egg?",
        "Write a short poem about rain.",
        "TypeError: 'list' object is not callable",
        "Write an SQL query that joins two tables.",
        "```\nprint('as a list')\n``` Why does this fail?",
        "docker says invalid reference format",
        "Put milk on my shopping list.",
        "How many steps did I walk?",
        "this just prints the wrong result",
        "I just need an answer to this question",
        "Kindly write an e-mail to my boss.",
        "What kind of bird is this?",
        "a ton of warm milk",
        "Der Ton im Video fehlt.",
        "Nicht nur die Zahlen sind falsch.",
        "¿Es largo el libro que lleva mi nombre?",
        "Poli le métal.",
        "Przyjaciel",
        "这是正式版吗",
        "只要明天不下雨",
        "これだけ",
    ],
)
def test_what_a_request_is_about_is_no_wish(text: str) -> None:
    assert not asked_themes(text)


def test_ordinary_homework_asks_for_no_form() -> None:
    rng = random.Random(0)
    asked = [ask(rng, random_problem(rng, "train")) for _ in range(300)]
    assert not [text for text in asked if asked_themes(text)]


def test_a_complaint_names_a_form_by_a_word() -> None:
    assert wish_themes("That's no list!") == LAYOUT
    assert wish_themes("Too long and too cold.") == LENGTH | TONE
    assert not wish_themes("That is wrong.")


def test_what_repeats_a_request_and_what_gives_way_to_it() -> None:
    request = "What is in Rome? Use bullet points."
    assert repeats(request, "I asked for a list.")
    assert not repeats(request, "A list, and friendly!") and gives_way("A list, and friendly!", request)
    assert not repeats(request, "That is wrong.") and not gives_way("That is wrong.", request)
    assert not repeats("What is in Rome?", "I asked for a list.")


def test_most_complaints_that_repeat_a_request_are_told() -> None:
    words = wordings()["search"]["list"]
    pairs = [(asked, said) for asked in words["asked"] for said in words["complaint"]]
    assert sum(repeats(f"Ann has 3 pears. {asked}", said) for asked, said in pairs) > 0.9 * len(pairs)


def test_only_the_ends_of_a_long_text_are_read() -> None:
    filler = "word " * 1000
    assert (
        asked_themes(f"As a list, please: {filler}") == asked_themes(f"{filler} As a list, please") == LAYOUT
    )
    assert not asked_themes(f"{filler} as a list {filler}")
