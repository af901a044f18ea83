"""What people say after an answer, in ten languages: which hints the rules make of it, and which they must not make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openclaw.judge.hints import find_hints
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import hint_by_rules, vote_by_rules
from openclaw.types import Vote

DATA = Path(__file__).parent / "data" / "user_lines"
PARTS = ("seen", "held_out")
COMPLAINTS = ("complaint", "quotation")


def question(said: str, asked: str, answer: str) -> JudgeQuestion:
    return JudgeQuestion(
        response=answer,
        next_state=[{"role": "user", "content": said}],
        role="user",
        messages=[{"role": "user", "content": asked}],
    )


def rows(part: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{part}.jsonl").read_text("utf-8").splitlines()]


def hint_of(row: dict[str, Any]) -> str:
    """The hint that a turn would get, as stored."""
    hint = hint_by_rules(question(row["text"], row["request"], row["answer"]))
    return next(iter(find_hints([Vote(score=1, hint=hint)], 2000).hints), "") if hint else ""


def is_wanted(row: dict[str, Any], hint: str) -> bool:
    lacks = row["lacks"] is None or row["lacks"].lower() not in hint.lower()
    return row["holds"].lower() in hint.lower() and lacks


@pytest.mark.parametrize("part", PARTS)
def test_four_of_five_expected_hints_are_found_without_a_new_topic(part: str) -> None:
    wanted = [(row, hint_of(row)) for row in rows(part) if row["hint"]]
    assert sum(is_wanted(row, hint) for row, hint in wanted) >= 0.8 * len(wanted)
    assert [row["text"] for row, hint in wanted if hint and row["lacks"] and row["lacks"] in hint] == []


@pytest.mark.parametrize("part", PARTS)
def test_thanks_new_requests_and_complaints_without_advice_give_no_hint(part: str) -> None:
    made = [row["text"] for row in rows(part) if not row["hint"] and hint_of(row)]
    assert made == []


@pytest.mark.parametrize("part", PARTS)
def test_feedback_in_every_language_gets_the_right_score_and_never_the_opposite_sign(
    part: str,
) -> None:
    hits: dict[str, list[bool]] = {}
    for row in rows(part):
        score = vote_by_rules(question(row["text"], row["request"], row["answer"])).score or 0
        assert score * row["reward"] >= 0, row["text"]
        hits.setdefault(row["language"], []).append(score == row["reward"])
    every = [hit for of_one in hits.values() for hit in of_one]
    assert sum(every) >= 0.85 * len(every)
    assert min(sum(of_one) / len(of_one) for of_one in hits.values()) >= {"seen": 0.7, "held_out": 0.75}[part]


def test_no_writer_is_in_both_parts() -> None:
    seen, held_out = ({row["person"] for row in rows(part)} for part in PARTS)
    assert len(seen) == len(held_out) == 10 and not seen & held_out


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("shorter", "Write the answer like this: shorter"),
        ("no emojis", "Write the answer like this: no emojis"),
        ("说人话", "请这样写：说人话"),
        ("kürzer", "Schreib die Antwort so: kürzer"),
        ("Too long. And can you tell me how far the moon is?", "Change this in the answer: Too long"),
        ("Thanks, but no lists please", "Thanks, but no lists please"),
    ],
)
def test_a_request_of_one_or_two_words_is_completed_to_a_sentence(said: str, hint: str) -> None:
    assert hint_by_rules(question(said, "What is a list?", "**A list** 🎉 is a thing with points.")) == hint


@pytest.mark.parametrize(
    "said",
    [
        "Please write a poem about autumn without emojis.",
        'Rewrite this more politely: "You never answer my mails."',
        "can u write my essay on romeo and juliet, not too long like 300 words",
        "Give me three examples.",
        "Does it fit on one page?",
        "In zwei Sätzen: Was ist ein Quark-Gluon-Plasma?",
        "Escribe una lista de ríos de Francia",
        "用三句话介绍一下北京的历史",
    ],
)
def test_a_new_request_with_words_about_form_is_not_feedback(said: str) -> None:
    assert (
        vote_by_rules(question(said, "How do I cook rice?", "Wash it and boil it for 12 minutes.")).score == 0
    )
