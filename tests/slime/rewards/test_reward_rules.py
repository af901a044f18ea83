"""Tests the built-in rewards on typical texts of models."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest

from slime.errors import RewardError
from slime.rollout.rm_hub.answers import last_boxed, same_without_algebra
from slime.rollout.rm_hub.grader import Grader
from slime.rollout.rm_hub.ifbench import ifbench_reward
from slime.rollout.rm_hub.instructions import CHECKS
from slime.rollout.rm_hub.mathematics import dapo_reward, deepscaler_reward, math_reward
from slime.rollout.rm_hub.text import f1_reward, gpqa_reward


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"first \boxed{1}, then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{ x^{2} + \{y\} }", r"x^{2} + \{y\}"),
        (r"\fbox{7}", "7"),
        (r"$\boxed 9$", "9"),
        (r"\boxed{never ends", None),
        (r"\boxed{}", ""),
        ("no box at all", None),
    ],
)
def test_the_last_boxed_expression_is_the_answer(text: str, answer: str | None) -> None:
    assert last_boxed(text) == answer


@pytest.mark.parametrize(
    ("answer", "label", "same"),
    [
        ("42", "42.0", True),
        ("1,234,567", "1234567", True),
        ("1,23", "123", None),
        (r"\frac12", "0.5", True),
        (r"-\dfrac{3}{4}", "-3/4", True),
        ("1/3", "0.3333", False),
        ("1e3", "1000", True),
        (r"\text{Paris}", "paris.", True),
        ("dog", "god", False),
        ("listen", "silent", False),
        ("50\\%", "50%", True),
        (r"90^\circ", "90", True),
        ("", "5", False),
        ("x+1", "1+x", None),
        ("9" * 1000, "9" * 999, None),
    ],
)
def test_numbers_and_words_are_compared_without_algebra(answer: str, label: str, same: bool | None) -> None:
    assert same_without_algebra(answer, label) is same


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        (r"thus \boxed{2\sqrt{2}}", r"\sqrt{8}", 1.0),
        (r"\boxed{(x-1)(x+1)}", "x^2-1", 1.0),
        (r"\boxed{\{2,1\}}", r"\{1,2\}", 1.0),
        (r"\boxed{(2,1)}", "(1,2)", 0.0),
        (r"\boxed{[0,1)}", "[0,1]", 0.0),
        (r"\boxed{\pi}", "3.14", 0.0),
        (r"\boxed{x=5}", "5", 1.0),
        (r"\boxed{\text{(A)}}", "A", 1.0),
        (r"\boxed{7}", ["6", "7"], 1.0),
        (r"\boxed{7}", 7, 1.0),
        (r"\boxed{7}", r"\boxed{7}", 1.0),
        ("7", "7", 1.0),
        ("The answer is 7", "8", 0.0),
        (r"\boxed{}", "7", 0.0),
        ("", "7", 0.0),
        (r"\boxed{3}", None, 0.0),
        ("\\boxed{" + "+".join("x" * 2000) + "}", "x", 0.0),
    ],
)
def test_math_accepts_exactly_equal_answers(response: str, label: object, reward: float) -> None:
    assert math_reward(response, label) == reward


def test_an_answer_that_algebra_cannot_finish_is_wrong_and_the_next_one_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grader = Grader(1)
    try:
        assert grader.same("x + 1", "1 + x")
        monkeypatch.setattr("slime.rollout.rm_hub.grader.ANSWER_SECONDS", 0.5)
        assert not grader.same("10^{10^{10}}", "3")
        assert list(grader.idle.queue) == [None], "the process is gone"
        monkeypatch.undo()
        assert grader.same("x + 1", "1 + x")
    finally:
        grader.close()


def test_a_server_with_more_than_a_thousand_open_files_still_grades() -> None:
    with contextlib.ExitStack() as files:
        for _ in range(1100):
            files.enter_context(open(os.devnull))
        grader = Grader(1)
        files.callback(grader.close)
        assert grader.same("x + 1", "1 + x")


def test_deepscaler_reads_only_the_text_after_the_reasoning() -> None:
    assert deepscaler_reward(r"<think>\boxed{1}</think> so \boxed{2}", "2") == 1.0
    assert deepscaler_reward(r"<think>\boxed{2}</think> so 2", "2") == 0.0
    assert deepscaler_reward(r"<think>\boxed{2}", "2") == 0.0
    assert deepscaler_reward(r"###Response \boxed{0.5}", r"\frac{1}{2}") == 1.0


def test_dapo_scores_the_last_answer_line_near_the_end() -> None:
    assert dapo_reward("so\nAnswer: 34", "34") == {"score": 1.0, "acc": True, "pred": "34"}
    assert dapo_reward("Answer: 34\n\nAnswer: $35$", 34)["score"] == -1.0
    assert dapo_reward(r"Answer: \boxed{34}", "34")["acc"]
    assert dapo_reward("34", "34") == {"score": -1.0, "acc": False, "pred": "[INVALID]"}
    assert not dapo_reward("Answer: 34" + "." * 300, "34")["acc"]


def test_f1_is_the_overlap_of_words() -> None:
    assert f1_reward("The Eiffel Tower!", "eiffel tower") == 1.0
    assert f1_reward("in Paris, France", "Paris") == pytest.approx(0.5)
    assert f1_reward("red red", "red") == pytest.approx(2 / 3)
    assert f1_reward("London", ["Paris", "London"]) == 1.0
    assert f1_reward("yes it is", "yes") == 0.0
    assert f1_reward("", "Paris") == f1_reward("Paris", None) == 0.0


@pytest.mark.parametrize(
    ("response", "label", "metadata", "reward"),
    [
        ("I think the answer is (B).", "B", {}, 1.0),
        ("Answer: C", "B", {}, 0.0),
        ("A is tempting. Final answer: **B**", "B", {}, 1.0),
        (r"\boxed{D}", "", {"correct_letter": "D"}, 1.0),
        ("<think>Answer: A</think>Answer: B", "B", {}, 1.0),
        ("B", 1, {"choices": ["red", "blue"]}, 1.0),
        ("It must be blue", "blue", {"choices": {"a": "red", "b": "blue"}}, 1.0),
        ("red or blue", "blue", {"choices": ["red", "blue"]}, 0.0),
        ("Answer: Z", "B", {"valid_letters": ["A", "B"]}, 0.0),
        ("Answering this is hard", "A", {}, 0.0),
    ],
)
def test_gpqa_extracts_the_letter(
    response: str, label: object, metadata: dict[str, Any], reward: float
) -> None:
    assert gpqa_reward(response, label, metadata) == reward


def test_gpqa_without_a_correct_choice_is_rejected() -> None:
    with pytest.raises(RewardError, match="correct_letter"):
        gpqa_reward("A", "the third one", {"choices": ["x", "y"]})


FOLLOWED: list[tuple[str, dict[str, Any], str, str]] = [
    ("punctuation:no_comma", {}, "No commas here.", "One, two."),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one two three", "one two"),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "less than"},
        "one two",
        "one two three",
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        "A b. C d!",
        "A b c d.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One.\n***\nTwo.", "One. Two."),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
        "First.\n\nThen more.",
        "Then.\n\nFirst.",
    ),
    ("keywords:existence", {"keywords": ["red", "blue"]}, "Red and blue.", "Reddish and blue."),
    ("keywords:forbidden_words", {"forbidden_words": ["red"]}, "Reddish.", "It is red."),
    ("keywords:frequency", {"keyword": "go", "frequency": 2, "relation": "at least"}, "go, go", "go, gone"),
    (
        "keywords:letter_frequency",
        {"letter": "e", "let_frequency": 2, "let_relation": "at least"},
        "Even",
        "odd",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "Dear [name]", "Dear name"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye\nP.S. Hi", "Bye"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and **b**", "*a*"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Part", "num_sections": 2},
        "Part 1\nPart 2",
        "Part 1",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{a: 1}"),
    ("detectable_format:title", {}, "<<Joy>>\ntext", "<< >>\ntext"),
    ("detectable_format:constrained_response", {}, "My answer is yes.", "Yes."),
    ("change_case:english_capital", {}, "LOUD 1!", "Loud"),
    ("change_case:english_lowercase", {}, "calm 1", "Calm"),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 1, "capital_relation": "at least"},
        "so BIG",
        "so Big",
    ),
    ("startend:end_checker", {"end_phrase": "The end."}, "Well. The end.", "The end. Or not"),
    ("startend:quotation", {}, '"all of it"', '"a" b'),
    ("combination:two_responses", {}, "one\n******\ntwo", "one\n******\none"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "What is it?"}, "What is it? A cat.", "A cat."),
    ("count:word_count_range", {"min_words": 2, "max_words": 3}, "one two", "one two three four"),
    ("count:unique_word_count", {"N": 3}, "a b c a", "a b a b"),
    ("count:numbers", {"N": 2}, "3 and 4.5", "only 3"),
    ("count:punctuation", {}, "a, b; c: d! e? f?! g.", "a, b; c: d! e? g."),
    ("words:alphabet", {}, "Apes bring cats", "Apes cats"),
    (
        "words:palindrome",
        {},
        "level radar civic madam refer rotor kayak tenet solos stats",
        "level level level level level level level level level level",
    ),
    ("words:repeats", {"small_n": 2}, "a a b", "a a a"),
    ("words:no_consecutive", {}, "big red dog", "big blue dog"),
    ("sentence:keyword", {"word": "cat", "N": 2}, "Hi. A cat.", "A cat. Hi."),
    ("format:newline", {}, "one\ntwo", "one two"),
    ("format:no_whitespace", {}, "Iamone", "I am"),
]


@pytest.mark.parametrize(("name", "given", "follows", "fails"), FOLLOWED, ids=[row[0] for row in FOLLOWED])
def test_each_instruction_accepts_its_example_and_rejects_its_counterexample(
    name: str, given: dict[str, Any], follows: str, fails: str
) -> None:
    assert CHECKS[name](follows, given)
    assert not CHECKS[name](fails, given)


def test_every_instruction_has_an_example() -> None:
    assert {row[0] for row in FOLLOWED} == set(CHECKS)


def test_ifbench_requires_all_instructions_and_reports_unsupported_ones() -> None:
    both = {
        "instruction_id_list": ["punctuation:no_comma", "startend:end_checker"],
        "kwargs": [{}, {"end_phrase": "bye", "num_words": None}],
    }
    assert ifbench_reward("<think>hm, yes</think>So bye", both) == 1.0
    assert ifbench_reward("So, bye", both) == 0.0
    assert ifbench_reward("", both) == 0.0
    with pytest.raises(RewardError, match="language:response_language"):
        ifbench_reward("Hola", {"instruction_id_list": ["language:response_language"]})
    with pytest.raises(RewardError, match="argument 'end_phrase' is missing"):
        ifbench_reward("x", {"instruction_id_list": ["startend:end_checker"]})
    with pytest.raises(RewardError, match="instruction_id_list"):
        ifbench_reward("x", {})
