"""Aspects of an answer's form that a text mentions, in the languages of the rules judge."""

from __future__ import annotations

import random
import time

import pytest

from openclaw.common.wish_themes import asked_themes, is_overridden, repeats, wish_themes
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
def test_explicit_requests_are_recognised(text: str, themes: set[str]) -> None:
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
def test_the_topic_of_a_request_is_not_a_preference(text: str) -> None:
    assert not asked_themes(text)


ASKED = [
    ("layout", "Compare cats and dogs, put it in a table."),
    ("layout", "No markdown please. What is a monad?"),
    ("layout", "Tabulate the differences between TCP and UDP."),
    ("layout", "Which herbs grow in shade? One item per line."),
    ("layout", "Packing for Norway, checklist format."),
    ("layout", "Answer in prose, not points: why did Rome fall?"),
    ("layout", "Vergleiche Gas und Strom, als Tabelle bitte."),
    ("layout", "Erklär mir DNS ohne Formatierung."),
    ("layout", "Nenn die Vorteile in Stichworten."),
    ("layout", "比较一下两种电池，用表格列出。"),
    ("layout", "分条说明搬家要做什么"),
    ("layout", "不要分点，写成一段话：什么是通货膨胀"),
    ("layout", "Explica el ciclo del agua en forma de tabla."),
    ("layout", "Qué es un virus, sin formato por favor"),
    ("layout", "Explique la photosynthèse, sans puces ni gras."),
    ("length", "Who was Darwin? max 50 words"),
    ("length", "Explain inflation in under 100 words."),
    ("length", "What is rust? No more than three sentences."),
    ("length", "tl;dr of quantum computing"),
    ("length", "Explain blockchain in a nutshell."),
    ("length", "Describe the heart, as detailed as possible."),
    ("length", "Give me an in-depth explanation of TLS."),
    ("length", "Was ist Inflation? Höchstens drei Sätze."),
    ("length", "Erklär mir ganz kurz, was ein Verb ist."),
    ("length", "Fasse das in zwei Sätzen zusammen."),
    ("length", "介绍一下长城，不超过一百字"),
    ("length", "用一两句话解释重力"),
    ("length", "越详细越好：怎么养兰花"),
    ("length", "Resume la guerra fría en dos frases."),
    ("length", "Explica la inflación en menos de 50 palabras."),
    ("length", "Décris Paris en moins de 100 mots."),
    ("length", "Explique en deux phrases ce qu'est un atome."),
    ("tone", "Write to my boss, keep it casual."),
    ("tone", "Explain taxes, and be funny about it."),
    ("tone", "Sound professional: decline this invitation."),
    ("tone", "No jargon please, what is a hedge fund?"),
    ("tone", "Antworte mit Humor: warum schnurren Katzen?"),
    ("tone", "Sei nett und erklär mir Brüche."),
    ("tone", "用正式的语气写一封请假邮件"),
    ("tone", "幽默一点，解释一下黑洞"),
    ("tone", "Responde con humor: ¿por qué llueve?"),
    ("tone", "Réponds de façon formelle : comment postuler ?"),
    ("tone", "Answer like a pirate would: what is gold?"),
    ("tone", "No emojis. How do I cook rice?"),
]
MENTIONED = [
    "What is the word limit of a tweet?",
    "How do I make a table in Word?",
    "what is bullet journaling",
    "Who is on the list of kings of Spain?",
    "My bullet points do not align in PowerPoint, why?",
    "How many words are in War and Peace?",
    "What does tl;dr mean?",
    "Translate 'keep it short' into German.",
    "What is a friendly match in football?",
    "Is a formal dress needed at a wedding?",
    "How do I write a list comprehension in Python?",
    "Wie macht man in Word eine Tabelle?",
    "Was bedeutet „kurz und knapp“?",
    "列表推导式是什么",
    "¿Qué es una lista de espera?",
    "¿Cómo se hace una tabla dinámica en Excel?",
    "Comment faire un tableau dans Excel ?",
    "Why do sentences need verbs?",
    "How do I turn off bold in Gmail?",
    "What is the tone of this violin string?",
    "Why is my paragraph spacing so big in Google Docs?",
    "Can you recommend a detailed map of Rome?",
    "How long is a short story?",
    "How do I use bullets in LaTeX?",
    "Wo finde ich eine Liste der Postleitzahlen?",
    "What are emojis made of?",
    "Write a Python function that returns a list.",
    "Was ist ein Satz in der Musik?",
    "怎么在Excel里做表格",
    "Mi jefe es muy amable, ¿qué le regalo?",
]


def test_nine_of_ten_form_requests_are_recognised_and_few_mentions_are() -> None:
    """Written before the patterns were extended; at that time 12 of these were recognised, and 12 of the mentions
    matched."""
    assert sum(theme in asked_themes(text) for theme, text in ASKED) >= 0.9 * len(ASKED)
    assert sum(bool(asked_themes(text)) for text in MENTIONED) <= 1


@pytest.mark.parametrize(
    "piece", ["in ", "as a list ", ",", "how ", "?", '"', ". ", "max 5 ", "one ", "不", "a "]
)
def test_an_adversarial_text_is_parsed_in_linear_time(piece: str) -> None:
    begun = time.process_time()
    asked_themes((piece * 20_000)[:20_000] + "\x00")
    assert time.process_time() - begun < 1


def test_ordinary_homework_requests_no_form() -> None:
    rng = random.Random(0)
    asked = [ask(rng, random_problem(rng, "train")) for _ in range(300)]
    assert not [text for text in asked if asked_themes(text)]


def test_a_form_is_recognised_by_a_word_of_a_complaint() -> None:
    assert wish_themes("That's no list!") == LAYOUT
    assert wish_themes("Too long and too cold.") == LENGTH | TONE
    assert not wish_themes("That is wrong.")


def test_repetitions_of_a_request_and_overridden_preferences_are_recognised() -> None:
    request = "What is in Rome? Use bullet points."
    assert repeats(request, "I asked for a list.")
    assert not repeats(request, "A list, and friendly!") and is_overridden("A list, and friendly!", request)
    assert not repeats(request, "That is wrong.") and not is_overridden("That is wrong.", request)
    assert not repeats("What is in Rome?", "I asked for a list.")


def test_most_complaints_that_repeat_a_request_are_recognised() -> None:
    words = wordings()["search"]["list"]
    pairs = [(asked, said) for asked in words["asked"] for said in words["complaint"]]
    assert sum(repeats(f"Ann has 3 pears. {asked}", said) for asked, said in pairs) > 0.9 * len(pairs)


def test_only_the_start_and_end_of_a_long_text_are_parsed() -> None:
    filler = "word " * 1000
    assert (
        asked_themes(f"As a list, please: {filler}") == asked_themes(f"{filler} As a list, please") == LAYOUT
    )
    assert not asked_themes(f"{filler} as a list {filler}")
