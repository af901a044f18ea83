"""The form of an answer, and the preferences that a complaint about it cannot express."""

from __future__ import annotations

import time

import pytest

from openclaw.common.answer_form import already_has, count_sentences, greets, is_list, is_prose, is_short

PROSE = "The tide comes in twice a day because the moon pulls at the sea."


@pytest.mark.parametrize(
    "answer",
    [
        "- flour\n- eggs",
        "1. flour\n2. eggs",
        "・小麦粉\n・卵",
        "1、面粉\n2、鸡蛋",
    ],
)
def test_bullets_and_numbers_of_many_scripts_are_a_list(answer: str) -> None:
    assert is_list(answer) and not is_prose(answer)
    assert "list" in already_has(answer) and "prose" not in already_has(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "| name | job |\n|---|---|\n| Ada | nurse |",
        "name | job\n--- | ---\nAda | nurse",
        "| 名前 | 仕事 |\n| :-- | --: |\n| 愛 | 看護師 |",
        "# Title\ntext",
        "**Note** this",
    ],
)
def test_tables_headings_and_bold_text_are_not_prose(answer: str) -> None:
    assert not is_prose(answer) and "prose" not in already_has(answer)


@pytest.mark.parametrize("answer", [PROSE, "2 * 3 = 6", "a | b", "well-known - and true\nso it is"])
def test_plain_text_is_prose(answer: str) -> None:
    assert is_prose(answer) and "prose" in already_has(answer)


def test_bold_text_is_neither_prose_nor_a_list() -> None:
    assert not already_has("**Note** The tide comes in twice a day.") & {"prose", "list"}


@pytest.mark.parametrize(
    "answer",
    [
        "Hello there!", "Hiii friend", "¡Holaaa! ¿Qué tal?", "Muy buenos días, estimado", "Coucou toi !",
        "Oi, tudo bem?", "您好呀！八分钟。", "哈喽哈喽", "こんにちは！本日は", "Добрый день, уважаемая", "أهلا وسهلا",
        "Namaste ji!", "नमस्कार महोदय!", "Moin!",
    ],
)  # fmt: skip
def test_a_greeting_is_found_in_ten_languages(answer: str) -> None:
    assert greets(answer) and "greet" in already_has(answer)


@pytest.mark.parametrize(
    "answer", ["Oil is heavier.", "Hearts beat.", "Dearest of all is tea.", "Holanda es plana.", PROSE]
)
def test_words_that_begin_like_a_greeting_are_none(answer: str) -> None:
    assert not greets(answer)


def test_many_rows_of_bars_are_read_in_linear_time() -> None:
    begun = time.process_time()
    is_prose("a | b |\n" * 20_000 + "|" * 100_000)
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", 0),
        ("Yes.", 1),
        ("It costs 3.5 euros, e.g. at the market.", 1),
        ('"Stop!" he shouted. Then he left', 2),
        ("First line\nsecond line\n", 2),
        ("Pick one:\n\n1. red\n2. blue", 3),
        ("东京是日本的首都。人口约一千四百万。", 2),
        ("दिल्ली भारत की राजधानी है। यह बड़ी है।", 2),
        ("هل هذا صحيح؟ نعم.", 2),
        ("Привет! Как дела? Хорошо.", 3),
    ],
)
def test_sentences_are_counted(text: str, sentences: int) -> None:
    assert count_sentences(text) == sentences


def test_a_short_answer_has_two_sentences_and_forty_words() -> None:
    sentence = "Two " + "more " * 18 + "words."
    assert is_short(f"{sentence} {sentence}") and not is_short(f"{sentence} {sentence} More")
    assert not is_short("One. Two. Three.") and not is_short("word " * 41)
