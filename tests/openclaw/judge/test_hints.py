"""From what a judge says to the hints of a turn, whatever the judge does."""

from __future__ import annotations

import pytest

from openclaw.judge.backends.votes import read_hint_vote
from openclaw.judge.hints import find_hints
from openclaw.judge.metrics import HintHabit, JudgeMetrics
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import RulesBackend, hint_by_rules
from openclaw.types import Vote
from tiny_claw import wordings


def vote(hint: str | None, score: int | None = 1, text: str = "") -> Vote:
    return Vote(score=score, text=text, hint=hint)


def question(said: str, asked: str = "What is 12 + 5?", reply: str = "**17**") -> JudgeQuestion:
    return JudgeQuestion(
        response=reply,
        next_state=[{"role": "user", "content": said}],
        role="user",
        messages=[{"role": "user", "content": asked}],
    )


def test_hints_are_unique_and_sorted_by_length() -> None:
    found = find_hints([vote("Write plain prose."), vote("Use sentences."), vote("Write plain prose.")], 2000)
    assert found.hints == ["Use sentences.", "Write plain prose."] and found.score == 1.0
    assert found.counts == {"accepted": 3, "duplicate": 1}


def test_a_single_vote_for_a_hint_is_enough() -> None:
    found = find_hints([vote(None, -1), vote(None, None), vote("Use sentences.")], 2000)
    assert found.hints == ["Use sentences."]
    assert found.counts == {"accepted": 1, "none": 1, "invalid": 1}


def test_too_long_too_short_and_missing_hints_are_rejected_and_counted() -> None:
    essay = "word " * 5000
    found = find_hints([vote(essay), vote("Use prose."), vote(None)], 2000)
    assert found.hints == [] and found.score == -1.0
    assert found.counts == {"too_long": 1, "too_short": 1, "missing": 1}


def test_four_chinese_characters_are_long_enough_for_a_hint() -> None:
    assert find_hints([vote("不用列表")], 2000).hints == ["不用列表"]


def test_the_last_of_two_hint_blocks_is_used_and_counted() -> None:
    reply = r"\boxed{1} [HINT_START]first thought[HINT_END] [HINT_START]second thought[HINT_END]"
    found = find_hints([read_hint_vote(reply)], 2000)
    assert found.hints == ["second thought"] and found.counts["repeated_markers"] == 1


def test_a_judge_that_always_or_never_returns_a_hint_is_reported_once_per_window() -> None:
    habit = HintHabit(3)
    assert [habit.add(True) is not None for _ in range(6)] == [False, False, True, False, False, True]
    assert habit.add(False) is None
    assert [habit.add(False) for _ in range(2)][-1] == "none of the last 3 turns has a hint"


def test_hint_votes_are_counted_in_the_metrics() -> None:
    metrics = JudgeMetrics("x")
    metrics.hinted(find_hints([vote("Use sentences.")], 2000))
    metrics.hinted(find_hints([vote(None, -1)], 2000))
    hints = metrics.snapshot()["hints"]
    assert hints == {"turns_with": 1, "turns_without": 1, "votes_accepted": 1, "votes_none": 1}


COMPLAINTS = [
    text
    for table in (*wordings.MANNER_COMPLAINTS.values(), wordings.LOST_STEPS_COMPLAINTS)
    for split in ("train", "test")
    for text in table[split]
]


@pytest.mark.parametrize("text", COMPLAINTS)
def test_a_complaint_with_advice_becomes_a_hint_in_the_persons_words(text: str) -> None:
    assert hint_by_rules(question(text)) == text


@pytest.mark.parametrize("text", [*wordings.WRONG_RESULT_COMPLAINTS["train"], *wordings.THANKS["train"]])
def test_a_bare_rejection_and_thanks_give_no_hint(text: str) -> None:
    assert hint_by_rules(question(text)) == ""


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("No, it should be 42.", "No, it should be 42."),
        ("That is wrong. You forgot the tax.", "You forgot the tax."),
        ("You forgot the tax. Next problem: what is 5 + 6?", "You forgot the tax."),
        ("不要用列表，用自然的句子写。", "不要用列表，用自然的句子写。"),
        ("I don't like the list. Please write sentences.", "I don't like the list. Please write sentences."),
    ],
)  # fmt: skip
def test_the_hint_of_a_correction_ends_before_the_next_task(said: str, hint: str) -> None:
    assert hint_by_rules(question(said)) == hint


def test_a_request_repeated_verbatim_contains_no_hint() -> None:
    assert hint_by_rules(question("What is 12 + 5?")) == ""


async def test_all_votes_of_the_rules_contain_the_whole_complaint_as_hint() -> None:
    """A part of it alone ("That looks like AI.") teaches hardly anything, and a method would choose just that one."""
    backend = RulesBackend()
    said = "That looks like AI. Write it in normal sentences."
    votes = await backend.hint_votes(question(said), 3)
    assert [one.hint for one in votes] == [said] * 3
    assert find_hints(votes, 2000).hints == [said]
    assert [one.score for one in await backend.hint_votes(question("Thanks!"), 2)] == [-1, -1]
