"""Texts, shares and preferences: pure functions of the reports."""

from __future__ import annotations

import math

import pytest

from openclaw.common.wish_forms import forms_of
from openclaw.progress.forms import FORMS, OPPOSITES, obeys, pleases
from openclaw.progress.replies import (
    Reply,
    distinct_2,
    opening,
    repeats_itself,
    rouge_l,
    self_rouge_l,
    sentence_count,
    word_count,
)
from openclaw.progress.statistics import mcnemar, mean_interval, wilson

LIST = "Try this:\n- one thing\n- another thing"


def test_words_are_counted_in_languages_without_spaces_too() -> None:
    assert word_count("two words") == 2
    assert word_count("今天天气很好") == 3
    assert sentence_count("It is 3.5 m. That is all!") == 2
    assert sentence_count("") == 0


def test_similarity_is_1_for_equal_texts_and_0_without_common_words() -> None:
    assert rouge_l("the cat sat", "The cat sat!") == 1.0
    assert rouge_l("the cat sat", "a dog ran") == 0.0
    assert rouge_l("the cat sat", "the cat ran") == pytest.approx(2 / 3)
    assert self_rouge_l(["a b", "a b", "c d"]) == pytest.approx(1 / 3)
    assert self_rouge_l(["alone"]) is None


def test_repeated_bigrams_reduce_diversity() -> None:
    assert distinct_2(["a b c"]) == 1.0
    assert distinct_2(["a b", "a b"]) == 0.5
    assert distinct_2(["word"]) is None


def test_a_text_opens_with_its_first_word_or_sign() -> None:
    assert [opening(text) for text in ("  Sure, it is.", '"Yes"', "- one", "今天天气", "")] == [
        "sure",
        '"',
        "-",
        "今天天气",
        "",
    ]


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("M" + "m" * 90, True),
        ("I'm just a little animal, " * 4, True),
        ("ha ha ha ha ha", False),
        (
            "A heat pump moves warmth from the air outside into a house, even in winter, and needs little power for it.",
            False,
        ),
        (
            "The kettle, the pot, the pan and the plate: the kettle boils, the pot cooks, the pan fries.",
            False,
        ),
    ],
)
def test_a_text_repeats_itself_if_most_of_it_occurred_before(text: str, is_so: bool) -> None:
    assert repeats_itself(text) == is_so


def test_the_interval_of_a_share_is_wilsons() -> None:
    low, high = wilson(8, 10) or (0.0, 0.0)
    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert wilson(0, 0) is None


def test_mcnemar_counts_only_changed_cases() -> None:
    assert mcnemar([True, False], [True, False]) == 1.0
    assert mcnemar([False] * 5 + [True] * 20, [True] * 25) == pytest.approx(2 / 2**5)
    assert mcnemar([False] * 1100, [True] * 1100) == 0.0 or math.isfinite(
        mcnemar([False] * 1100, [True] * 1100)
    )


def test_a_mean_of_one_number_has_no_interval() -> None:
    assert mean_interval([1.0]) is None
    low, high = mean_interval([1.0, 2.0, 3.0]) or (0.0, 0.0)
    assert low < 2.0 < high


@pytest.mark.parametrize(
    ("wish", "forms"),
    [
        ("Too long. One or two sentences, please.", ("brief",)),
        ("More detail next time, please.", ("long",)),
        ("That was too short.", ("long",)),
        ("I would rather read plain sentences than a list.", ("prose",)),
        ("Please write it as a numbered list.", ("list",)),
        ("why is it all bullet points, just write normally", ("prose",)),
        ("Start with a friendly hello, please.", ("greeting",)),
        ("No hello? Please say it first.", ("greeting",)),
        ("Skip the greeting.", ("no_greeting",)),
        ("Shorter, and no lists please.", ("brief", "prose")),
        ("Bitte kürzer.", ("brief",)),
        ("太长了，请简短一点", ("brief",)),
        ("Use metric units.", ()),
    ],
)
def test_the_form_of_a_preference_is_parsed(wish: str, forms: tuple[str, ...]) -> None:
    assert forms_of(wish) == forms


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ("brief", "It rains. Take a coat.", "One. Two. Three. Four."),
        ("long", "word " * 80, "word " * 79),
        ("prose", "It is a plain text.", LIST),
        ("list", LIST, "- one item alone"),
        ("greeting", "Hello! It rains.", "It rains, hello."),
        ("no_greeting", "It rains.", "Hi there, it rains."),
        ("table", "| a | b |\n|---|---|\n| 1 | 2 |", "a, b"),
        ("headings", "# Title\ntext", "text"),
    ],
)
def test_forms_are_recognized(form: str, good: str, bad: str) -> None:
    assert FORMS[form](Reply(good)) and not FORMS[form](Reply(bad))
    assert all(pole in FORMS for pole in OPPOSITES.get(form, ()))


def test_a_reply_that_was_cut_is_not_brief() -> None:
    assert pleases(("brief",), Reply("It rains."))
    assert not pleases(("brief",), Reply("It rains and", ended=False))


def test_a_prompts_own_pattern_takes_precedence_over_its_poles_rule() -> None:
    assert obeys("list", r"(?m)^\* ", Reply("* one")) and not obeys("list", None, Reply("* one"))
    assert not obeys(None, None, Reply("anything"))
