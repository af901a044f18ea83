"""Requests for the opposite on the questions of dreams: where they stand, what obeys them, and mismatches."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from openclaw.common.plain_sentences import Pole
from openclaw.dreaming import contrasts, texts
from openclaw.dreaming.texts import everyday
from openclaw.store.dreams import Dream


def test_opposite_requests_are_also_trained_along_the_answers_of_dreams() -> None:
    wordings = [wish for wish in texts.wishes() if (wish.theme, wish.pole) == ("length", "long")]
    questions = [prompt.id for prompt in everyday()[:2]]
    held = [
        Dream(
            kind="anchor", item=f"{wish.id}-{question}", theme="length long", prompt_ids=[number, 2],
            taught_ids=[number, 2], completion_ids=[40, 41, 42], version=0,
        )
        for question in questions
        for number, wish in enumerate(wordings)
    ]  # fmt: skip
    dream = Dream(
        kind="dream", item=questions[0], person="ann", wish="Shorter, please.", turn_ids=("t",), prompt_ids=[1],
        taught_ids=[1], completion_ids=[50], version=0,
    )  # fmt: skip
    of_complaint = {wish.id for wish in wordings if wish.place == "complaint"}
    assert 0 < len(of_complaint) < len(wordings)
    # The second question has no dream.
    expected = [one for one in held[: len(wordings)] if one.item.partition("-")[0] not in of_complaint]
    assert contrasts.mismatches(held, [dream]) == [
        replace(one, theme="length long mismatch", completion_ids=[50]) for one in expected
    ]


@pytest.mark.parametrize(
    ("theme", "answer", "tokens", "is_obeyed"),
    [
        ("length long", "word " * 70, 96, True),
        ("length long", "word " * 60, 95, False),
        ("length short", "Two hours.", 4, True),
        ("length short", "It takes", 128, False),
        ("layout list", "- one\n- two", 8, True),
        ("layout list", "One and two.", 8, False),
        ("layout prose", "- one\n- two", 8, False),
        ("greeting no_greeting", "Hello! Two hours.", 8, False),
        ("greeting no_greeting", "Two hours.", 8, True),
        ("greeting greet", "Hello! Two hours.", 8, True),
        ("greeting greet", "Two hours.", 8, False),
    ],
)
def test_the_answer_of_a_contrast_has_the_requested_form(
    theme: str, answer: str, tokens: int, is_obeyed: bool
) -> None:
    assert contrasts.obeys(theme, answer, tokens, 128) == is_obeyed


@pytest.mark.parametrize("pole", get_args(Pole))
def test_every_wish_has_opposite_requests(pole: Pole) -> None:
    for language in ("en", "de", "tr"):
        found = contrasts.prompts_of("How?", "p001", "So.", pole, language)
        assert len({one.id for one in found}) == sum(contrasts.WORDINGS.values())
        assert {one.theme for one in found} == {contrasts.theme_of(pole)}
        first = [one.messages[0]["role"] for one in found]
        assert first.count("system") == contrasts.WORDINGS["system"]
        in_question = [str(one.messages[0]["content"]) for one in found if len(one.messages) == 1]
        assert len(in_question) == contrasts.WORDINGS["question"]
        assert all("how" in text.lower() and "{" not in text for text in in_question)
        assert (
            sum(one.messages[1:2] == ({"role": "assistant", "content": "So."},) for one in found)
            == contrasts.WORDINGS["complaint"]
        )


def test_opposite_requests_stand_where_people_write_them() -> None:
    question = "Why do leaves turn red?"
    asked = [
        str(one.messages[0]["content"])
        for number in range(60)
        for one in contrasts.prompts_of(question, f"p{number:03}", "So.", "short", "en")
        if len(one.messages) == 1
    ]
    frames = {wish.text.replace("{Question}", question).replace("{question}", question[0].lower() + question[1:])
              for wish in texts.frames()}  # fmt: skip
    kinds = {
        "around": lambda text: text in frames,
        "after": lambda text: text.startswith(f"{question} "),
        "before": lambda text: text.endswith(f" {question}"),
        "own paragraph": lambda text: "\n\n" in text,
        "careless": lambda text: text == text.lower() and "?" not in text,
    }
    shares = {kind: sum(map(is_so, asked)) / len(asked) for kind, is_so in kinds.items()}
    assert min(shares.values()) > 0.03 and 0.2 < shares["around"] <= 0.5, shares
