"""Complaints about texts that the assistant did not write are not about its answer."""

from __future__ import annotations

import pytest

from claw_lab.benchmarks.learning.judge_bars import RULES, Clock, of_own_texts, of_person, rows
from openclaw.judge.rules.advice import advice_in
from openclaw.judge.rules.judge import vote_by_rules
from openclaw.judge.rules.own_texts import ABOUT_OTHERS, without_own_texts


def score(said: str, asked: str = "What is the capital of Peru?", answer: str = "It is Lima.") -> int:
    return vote_by_rules(of_person({"request": asked, "answer": answer, "text": said})).score or 0


@pytest.mark.parametrize(
    "said",
    [
        "My essay is too long, can you cut it?", "my boss says my emails are too formal, fix that",
        "I wrote a report that is too wordy. How can I shorten it?", "My sister says I talk too much.",
        "Mein Lebenslauf ist zu lang.", "Meine Chefin findet meine E-Mails zu förmlich.",
        "Mis alumnos escriben redacciones muy cortas. Mi informe es demasiado largo.",
        "Mon mémoire est trop long et ennuyeux.", "我的作文太长了，怎么缩短？", "老板说我的邮件太正式",
        "Моя курсовая слишком длинная, как сократить?", "Meu chefe diz que meus e-mails são longos demais",
    ],
)  # fmt: skip
def test_complaints_about_other_texts_are_neutral(said: str) -> None:
    assert score(said) == 0


@pytest.mark.parametrize(
    "said",
    [
        "That's too long for my essay.", "This makes my report too long.",
        "That is wrong. My essay needs the old capital.",
        "too long, my teacher wants one line", "Das ist zu lang für meinen Bericht.", "C'est trop long pour mon exposé.",
        "太长了，我的作文只要一句话", "Это слишком длинно для моего доклада.",
    ],
)  # fmt: skip
def test_complaints_about_an_answer_for_a_text_stay(said: str) -> None:
    assert score(said) == -1


def test_a_text_that_the_conversation_is_about_may_be_the_answer() -> None:
    assert score("My letter is too long, cut it.", "Write a letter to my landlord.", "Dear Sir, ...") == -1
    assert score("My code doesn't work.", "Count vowels in Python", "def count(text): ...") == -1
    given = "Correct this: I has went to the market yesterday with mine brother."
    assert score("My essay is too formal now.", given, "I went to the market yesterday.") == -1


def test_words_before_the_other_text_are_judged() -> None:
    said = "Thanks! My essay is too long, can you cut it?"
    assert without_own_texts(said, "en", "hi", "Hello!") == "Thanks!"
    assert score(said) == 1
    quoted = 'Translate: "my essay is too long"'
    assert without_own_texts(quoted, "en", "hi", "Hello!") == quoted
    assert vote_by_rules(
        of_person({"request": "hi", "answer": "Hello!", "text": "My essay is too long."})
    ).text == (ABOUT_OTHERS)


def test_few_held_out_requests_about_other_texts_are_judged_and_complaints_stay() -> None:
    found = of_own_texts(Clock(RULES))
    assert found["others"]["lines"] == 42 and found["others"]["judged"] <= 0.12
    assert found["complaints"]["right"] >= 0.8 and found["complaints"]["wrong_sign"] == 0


def test_no_held_out_line_shaped_the_rules() -> None:
    train, held_out = (
        {row["text"] for row in rows(f"own_texts/{part}.jsonl")} for part in ("train", "held_out")
    )
    assert len(train) == len(held_out) == 84 and not train & held_out


def test_unknown_words_do_not_depend_on_the_order_of_lists() -> None:
    advice = advice_in("en")
    assert advice is not None
    said = "Less prose, more signal."
    known = advice.unknown(said, "")
    advice._find, find = dict(reversed(advice._find.items())), advice._find
    try:
        assert advice.unknown(said, "") == known
    finally:
        advice._find = find
