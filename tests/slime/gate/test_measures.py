"""Tests stages b and c: measurements of stored and of sampled answers, and which of them reject an update."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slime.arguments import Arguments
from slime.gate.likelihood import measure_likelihood
from slime.gate.limits import bad_answers, bad_likelihood, is_near
from slime.gate.sampled import Tried, is_right, measure_sampled, repeats, script
from slime.types import Sample

ARGS = Arguments()


def stored(key: str, purpose: str, log_probs: list[float] | None = None) -> Sample:
    about = {"key": key, "gate": purpose}
    return Sample(tokens=[1, 2, 3], response_length=2, rollout_log_probs=log_probs, metadata=about)


def tried(text: str, ids: list[int] | None = None, ended: bool = True, log_prob: float = -0.1) -> Tried:
    numbers = list(range(len(text.split()))) if ids is None else ids
    return Tried(numbers, [log_prob] * len(numbers), text, ended)


def test_the_kl_from_live_to_candidate_is_measured_on_recent_answers() -> None:
    found = measure_likelihood([stored("a", "recent", [-1.0, -2.0])], {"a": [-1.5, -2.0]}, {})
    assert found == {"kl": pytest.approx((math.exp(-0.5) - 1 + 0.5) / 2), "recent": 1.0}
    known = measure_likelihood(
        [stored("a", "recent", [-9.0, -9.0])], {"a": [-1.5, -2.0]}, {"a": [-1.5, -2.0]}
    )
    assert known["kl"] == 0.0, "what the trainer measured counts before what the engine said"


def test_a_change_of_one_token_is_accepted_but_not_of_many() -> None:
    live = [-0.1] * 19 + [-6.0]
    samples = [Sample(tokens=[1] * 21, response_length=20, rollout_log_probs=live, metadata={"key": "a"})]
    for now in ([-0.1] * 20, [-6.0, *live[1:]]):
        assert measure_likelihood(samples, {"a": now}, {})["kl"] == pytest.approx(1 / 20)
    assert measure_likelihood(samples, {"a": [-6.0] * 4 + live[4:]}, {})["kl"] > ARGS.gate_max_kl
    for number in (-math.inf, math.nan):
        broken = measure_likelihood(samples, {"a": [number, *live[1:]]}, {})
        assert bad_likelihood(broken, ARGS) is not None


def test_the_loss_of_liked_answers_is_their_mean_log_prob_decrease_per_token() -> None:
    samples = [stored("a", "liked"), stored("b", "liked"), stored("new", "liked")]
    now = {"a": [-1.0, -1.0], "b": [-3.0, -3.0], "new": [-9.0, -9.0]}
    found = measure_likelihood(samples, now, {"a": [-1.0, -2.0], "b": [-1.0, -1.0]})
    assert found == {"liked_loss": pytest.approx((-0.5 + 2.0) / 2), "liked": 2.0}
    assert measure_likelihood([], {}, {}) == {}


@pytest.mark.parametrize("value", [0.2, float("nan"), float("inf")])
def test_a_likelihood_beyond_its_limit_or_not_finite_is_rejected(value: float) -> None:
    assert bad_likelihood({"kl": 0.05, "liked_loss": 0.05}, ARGS) is None
    assert "KL to the live weights" in str(bad_likelihood({"kl": value}, ARGS))
    assert "liked answers became less likely" in str(bad_likelihood({"liked_loss": value}, ARGS))


GOOD = [tried(f"There are {number} apples in all.") for number in range(10)]
WANTED: list[str | None] = [str(number) for number in range(10)]


def judged(answers: list[Tried], best: float | None = 1.0) -> str | None:
    live = measure_sampled(GOOD, WANTED, GOOD)
    return bad_answers(measure_sampled(answers, WANTED, GOOD), live, best, ARGS)


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ([tried("", ids=[1] * 6)] * 2, "are empty"),
        ([tried("There are 1 apples and so on", ended=False)] * 2, "are not terminated"),
        ([tried("a b a b", ids=[1, 2] * 15)] * 2, "are repetitive"),
        ([tried("一共有十个苹果。", ids=[1] * 6)] * 2, "another script"),
        ([tried("There are 7 apples in all.")] * 4, "identical"),
        ([tried("There are 99 apples in all.")], "questions are answered correctly"),
    ],
)
def test_answers_with_wrong_form_or_content_are_rejected(spoilt: list[Tried], reason: str) -> None:
    assert judged(GOOD) is None
    assert reason in str(judged([*spoilt, *GOOD[len(spoilt) :]]))


def test_answers_with_another_length_or_entropy_are_rejected() -> None:
    long = [tried(answer.text, ids=list(range(30))) for answer in GOOD]
    assert "answers have 30 tokens" in str(judged(long))
    unsure = [tried(answer.text, log_prob=-2.0) for answer in GOOD]
    assert "the mean surprise of the candidate's answers" in str(judged(unsure))


def test_correct_answers_are_compared_with_the_best_version_not_the_last() -> None:
    """So that a long series of small decreases is stopped too."""
    slightly = [tried("There are 99 apples in all."), *GOOD[1:]]
    live: dict[str, Any] = measure_sampled(slightly, WANTED, GOOD)
    assert bad_answers(live, live, 0.9, ARGS) is None
    assert bad_answers(live, live, 1.0, ARGS) is not None


def test_an_answers_last_number_and_whole_words_are_compared() -> None:
    assert (
        is_right("12 + 7 = 19", "19") and is_right("It is 1,900.", "1900") and not is_right("19 of 20", "19")
    )
    assert is_right("It is Paris.", "paris") and not is_right("Parisian", "paris")


def test_repetition_and_wrong_script_are_detected_in_long_answers() -> None:
    assert repeats([1, 2] * 12) and not repeats([1, 2] * 11) and not repeats(list(range(40)))
    assert (script("abc 12"), script("Привет"), script("12!")) == ("LATIN", "CYRILLIC", None)


def test_of_few_answers_one_may_be_wrong_in_form_and_two_may_not() -> None:
    old = GOOD[:8]
    live = measure_sampled(old, [None] * 8, old)
    for count, reason in ((1, None), (2, "are not terminated")):
        new = [tried(one.text, ended=False) for one in old[:count]] + old[count:]
        found = bad_answers(measure_sampled(new, [None] * 8, old), live, None, ARGS)
        assert (found is None) if reason is None else reason in str(found)


def test_one_answer_has_no_error_so_its_length_and_entropy_reject_nothing() -> None:
    one, other = tried("a", ids=[1]), tried("b", ids=list(range(90)), log_prob=-3.0)
    measured = measure_sampled([one], [None], [other])
    assert "length_error" not in measured and all(
        map(math.isfinite, measure_sampled([other], [None], [one]).values())
    )
    assert bad_answers(measured, measure_sampled([other], [None], [one]), None, ARGS) is None


def test_two_short_answers_may_differ_as_they_do_by_chance_but_ten_may_not() -> None:
    now = [Tried(list(range(6)), [-0.1, -1.2, 0.0, -0.3, -0.02, -0.1], "a", True)]
    live = [Tried(list(range(7)), [-2.5, -0.1, -3.0, -0.02, -0.6, -0.3, -0.1], "b", True)]

    def reason(count: int) -> str | None:
        measured = [measure_sampled(one * count, [None] * count, live * count) for one in (now, live)]
        return bad_answers(measured[0], measured[1], None, ARGS)

    assert reason(2) is None
    assert "the mean surprise of the candidate's answers" in str(reason(10))


@pytest.mark.parametrize(
    ("lengths", "is_bad"), [((2, 9), False), ((3, 3), True), ((60, 300), False), ((300, 310), True)]
)
def test_a_mean_length_of_two_answers_counts_if_both_are_alike(
    lengths: tuple[int, int], is_bad: bool
) -> None:
    live = [tried("a", ids=list(range(number))) for number in (28, 32)]
    now = [tried(f"b{number}", ids=list(range(number))) for number in lengths]
    measured = [measure_sampled(one, [None] * 2, live) for one in (now, live)]
    assert (bad_answers(measured[0], measured[1], None, ARGS) is not None) == is_bad


@pytest.mark.parametrize(
    ("measured", "near"),
    [
        ({"liked_loss": 0.0}, False),
        ({"liked_loss": -0.05}, False),
        ({"liked_loss": 0.03}, True),
        ({"liked_loss": -0.34}, True),
        ({"kl": 0.03}, True),
    ],
)
def test_an_update_that_loses_or_copies_liked_answers_is_asked_questions(
    measured: dict[str, float], near: bool
) -> None:
    assert is_near(measured, ARGS) == near
