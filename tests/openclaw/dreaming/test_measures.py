"""Which answers are kept, when a wish counts as learned, and how much the loss of facts weighs."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from openclaw.dreaming import measures
from openclaw.dreaming.measures import (
    Scored,
    about_of,
    answers_to_keep,
    learned,
    names,
    quotes,
    share_of_form,
    weight,
)
from openclaw.store.dreams import Dream, DreamKind


def made(
    kind: DreamKind = "dream",
    item: str = "p",
    gain: float | None = None,
    rollout_id: int = 0,
    hinted: bool = True,
) -> Dream:
    return Dream(
        kind=kind,
        item=item,
        prompt_ids=[1],
        taught_ids=[1, 2] if hinted else [1],
        completion_ids=[3],
        version=0,
        gain=gain,
        rollout_id=rollout_id,
        wish="shorter",
    )


def sampled_of(answers: list[Scored]) -> Counter[tuple[str | None, str | None]]:
    return Counter(about_of(one.dream) for one in answers)


def test_of_ten_answers_the_four_with_the_largest_gains_are_kept_but_no_unlikely_ones() -> None:
    answers = [Scored(made(item=f"p{n}"), float(n), n / 10 - 1.0) for n in range(10)]
    assert [one.item for one in answers_to_keep(answers, sampled_of(answers))] == ["p6", "p7", "p8", "p9"]
    answers[9] = Scored(answers[9].dream, 99.0, -7.0)
    answers[8] = Scored(answers[8].dream, 98.0, -6.0)
    kept = answers_to_keep(answers, sampled_of(answers))
    assert [one.item for one in kept] == ["p4", "p5", "p6", "p7"] and [one.gain for one in kept] == [
        4,
        5,
        6,
        7,
    ]


@pytest.mark.parametrize(
    ("answer", "is_quoted"),
    [
        ("Rain is water that falls from clouds.", False),
        ("It takes one or two days.", False),
        ("Please answer in ONE or two sentences. Rain is water.", True),
        ("The answer is: [user's hint / instruction] no.", True),
    ],
)
def test_an_answer_that_repeats_the_wish_is_detected(answer: str, is_quoted: bool) -> None:
    assert quotes(answer, "Please answer in one or two sentences.") == is_quoted
    assert not quotes("Hello there.", "Hello!")


@pytest.mark.parametrize(
    ("before", "now", "share"),
    [
        ([-10.0, -6.0], [-1.0, 0.5], 1.0),
        ([-10.0, -6.0], [-9.0, -3.0], 0.5),
        ([-10.0, -6.0], [], None),
        ([-0.5, -0.5], [0.0], None),
        ([3.0], [0.0], None),
    ],
)
def test_answers_are_learned_when_the_wish_makes_them_half_as_unlikely(
    before: list[float], now: list[float], share: float | None
) -> None:
    looks = [made("look", gain=gain) for gain in before]
    looks += [made("look", gain=0.0, rollout_id=3)] + [made("look", gain=gain, rollout_id=7) for gain in now]
    if not now:
        looks = looks[: len(before)]
    assert learned(looks) == share


def test_a_wish_for_a_form_is_learned_by_the_share_of_the_newest_answers_that_have_it() -> None:
    looks = [made("look", "old", rollout_id=1)] * 3 + [made("look", name, rollout_id=2) for name in "aab"]
    assert share_of_form(looks, lambda look: look.item == "a") == pytest.approx(2 / 3)
    assert share_of_form([], lambda _: True) is None


def test_a_share_after_a_rollout_depends_on_its_answers_and_the_first_ones() -> None:
    looks = [dataclasses.replace(made("look"), rollout_id=rollout_id) for rollout_id in (3, 3, 5, 7, 7)]
    kept = measures.first_and_newest(looks)
    assert {at: [one.rollout_id for one in own] for at, own in kept.items()} == {
        3: [3, 3],
        5: [3, 3, 5],
        7: [3, 3, 7, 7],
    }
    assert measures.first_and_newest([]) == {}


@pytest.mark.parametrize(
    ("first", "newest", "expected"),
    [
        ("++++++++++------", "++++++++++------", 1.0),
        ("++++++++++------", "++++++++--------", (8 + 2**0.5) / 10),
        ("++++++++++------", "+++++----------+", 6 / 10 + 6**0.5 / 10),
        ("++++------------", "++++++++--------", 1.0),
        ("+++-------------", "----------------", None),
        ("----------------", "++++++++++++++++", None),
    ],
)
def test_the_share_of_kept_requests_has_a_standard_error(
    first: str, newest: str, expected: float | None
) -> None:
    looks = [
        dataclasses.replace(made("look", f"q{number}", float(outcome == "+")), rollout_id=at)
        for at, outcomes in enumerate((first, newest))
        for number, outcome in enumerate(outcomes)
    ]
    assert measures.share_kept(looks, lambda look: bool(look.gain)) == (
        None if expected is None else pytest.approx(expected)
    )


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ([(0.0, None)], 1.0),
        ([(0.0, None), (0.5, 1.0)], measures.LESS),
        ([(0.0, None), (0.5, 0.8)], measures.MORE),
        ([(0.0, None), (0.5, 1.0), (None, None), (0.95, 1.0)], measures.LESS),
        ([(0.0, None), *[(0.5, 1.0)] * 9], measures.LEAST_FACTOR),
        ([(0.0, None), *[(0.95, 0.5)] * 9, (0.5, None)], measures.MOST_FACTOR * measures.LESS),
    ],
)
def test_anchors_weigh_more_if_requests_are_lost_and_less_if_the_wish_is_not_learned(
    measured: list[tuple[float | None, float | None]], expected: float
) -> None:
    assert measures.anchor_factor(measured) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("known", "kept", "expected"), [(8, 8, 1.0), (8, 7, 1.0), (8, 6, 0.75), (8, 3, 0.0), (2, 0, 1.0)]
)
def test_a_wish_weighs_less_if_its_teacher_loses_facts(known: int, kept: int, expected: float) -> None:
    facts = [made("fact", f"f{n}", float(n < known), hinted=False) for n in range(8)]
    facts += [made("fact", f"f{n}", float(n < kept)) for n in range(8)]
    assert weight(facts) == expected


@pytest.mark.parametrize(
    ("answer", "fact", "is_named"),
    [
        ("There are 18 of them.", "8", False),
        ("A spider has 8.", "8", True),
        ("Two foxes.", "fox", True),
        ("The highlight", "light", False),
        ("是巴黎。", "巴黎", True),
    ],
)
def test_a_fact_must_be_a_separate_word(answer: str, fact: str, is_named: bool) -> None:
    assert names(answer, fact) == is_named


def test_gained_facts_compensate_lost_ones() -> None:
    facts = [made("fact", f"f{n}", float(n < 3), hinted=False) for n in range(8)]
    facts += [made("fact", f"f{n}", float(2 <= n < 5)) for n in range(8)]
    assert weight(facts) == 1.0
