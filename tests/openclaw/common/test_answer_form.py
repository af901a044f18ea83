"""The form of an answer, and the preferences that a complaint about it cannot express."""

from __future__ import annotations

import time

import pytest

from openclaw.common.answer_form import already_has, is_list, is_prose

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


def test_many_table_rows_are_parsed_in_linear_time() -> None:
    begun = time.process_time()
    is_prose("a | b |\n" * 20_000 + "|" * 100_000)
    assert time.process_time() - begun < 2
