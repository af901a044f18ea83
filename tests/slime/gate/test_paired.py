"""Tests paired tests: their false-alarm rate, their sensitivity, and the version that they compare with."""

from __future__ import annotations

import random

import pytest

from slime.arguments import Arguments
from slime.gate.history import GateHistory
from slime.gate.limits import lost_facts, lost_more, lost_wishes
from slime.gate.paired import (
    CHANCE,
    SPLIT,
    Outcomes,
    at_least,
    chance_of,
    fewest_seen,
    is_worse,
    lost_and_gained,
    power,
)

ARGS = Arguments()
OBEYED = {str(at): True for at in range(40)}


def without(lost: int, gained: int = 0) -> Outcomes:
    """Returns outcomes of 40 obeyed requests without the lost ones, and others that are gained."""
    return {str(at): at >= lost for at in range(40)} | {f"new {at}": at < gained for at in range(20)}


REFERENCE = without(0)


@pytest.mark.parametrize(
    ("lost", "gained", "chance"), [(0, 0, 1.0), (1, 0, 0.5), (6, 0, 1 / 64), (5, 1, 7 / 64), (3, 3, 42 / 64)]
)
def test_the_p_value_is_that_of_fair_coin_flips_for_changed_answers(
    lost: int, gained: int, chance: float
) -> None:
    assert chance_of(lost, gained) == pytest.approx(chance)
    assert lost_and_gained(REFERENCE, without(lost, gained)) == (lost, gained)


def test_prompts_answered_by_only_one_version_do_not_count() -> None:
    assert lost_and_gained({"a": True, "old": True}, {"a": True, "new": False}) == (0, 0)


@pytest.mark.parametrize("part", SPLIT)
def test_updates_that_changed_by_chance_are_rejected_no_more_often_than_stated(part: str) -> None:
    alarms, seeded = SPLIT[part] * ARGS.gate_false_alarms, random.Random(1)
    found = 0
    for _ in range(4000):
        changed = [seeded.random() < 0.5 for _ in range(seeded.randrange(25))]
        found += chance_of(sum(changed), len(changed) - sum(changed)) <= alarms
    assert found / 4000 <= alarms


def test_the_tests_of_an_update_share_its_false_alarm_rate() -> None:
    assert sum(SPLIT.values()) == 1


def test_seven_lost_requests_or_eight_lost_questions_are_detected() -> None:
    assert fewest_seen(SPLIT["wish"] * 0.02) == 7
    assert fewest_seen(SPLIT["question"] * 0.02) == 8
    assert fewest_seen(SPLIT["wish"] * 0.02, gained=2) == 12
    assert power(38, 0.1, 0.01) < 0.2 and power(38, 0.3, 0.01) > 0.9


def test_lost_requests_are_detected_by_significance_above_the_floor() -> None:
    loose = Arguments(gate_min_obeyed=0.1)
    assert lost_wishes(without(6), REFERENCE, REFERENCE, loose) is None
    reason = lost_wishes(without(7), REFERENCE, REFERENCE, loose)
    assert str(reason).startswith(
        "7 explicit requests are no longer obeyed, in contrast to an earlier version"
    )
    assert lost_wishes(without(7), without(7), REFERENCE, loose) is None, "the live one is no better"


def test_many_gains_do_not_hide_a_loss_from_the_floor() -> None:
    strict = Arguments(gate_min_obeyed=0.9)
    now, before = without(20, 8), without(0, 0)
    assert chance_of(20, 8) > 0.01
    assert "of the explicit requests are obeyed" in str(lost_wishes(now, before, before, strict))


def test_questions_are_compared_with_the_reference_at_their_own_rate() -> None:
    assert lost_more("questions are wrong", OBEYED, without(7), "question", ARGS) is None
    assert "8 questions are wrong" in str(
        lost_more("questions are wrong", OBEYED, without(8), "question", ARGS)
    )


def test_of_sixteen_facts_five_may_be_lost_but_not_six() -> None:
    assert at_least(6, 16, CHANCE) == pytest.approx(0.0033, abs=1e-4)
    assert lost_facts(5, 16, ARGS) is None
    assert "6 of 16 known facts" in str(lost_facts(6, 16, ARGS))


def test_small_losses_accumulate_against_a_fixed_reference() -> None:
    history = GateHistory()
    history.compared_with("wish", REFERENCE)
    alarms = SPLIT["wish"] * ARGS.gate_false_alarms
    for lost in range(1, 7):
        now = without(lost)
        assert not is_worse(history.compared_with("wish", now), now, alarms)
        history.note_better("wish", now, alarms)
    assert is_worse(history.compared_with("wish", without(7)), without(7), alarms)


def test_only_a_significantly_better_version_becomes_the_reference() -> None:
    history = GateHistory()
    history.compared_with("wish", REFERENCE)
    history.note_better("wish", without(0, 6), 0.01)
    assert not any(history.reference["wish"][f"new {at}"] for at in range(20))
    history.note_better("wish", without(0, 7), 0.01)
    assert history.reference["wish"]["new 6"]


def test_new_prompts_of_a_file_are_compared_with_the_live_version() -> None:
    history = GateHistory()
    history.compared_with("wish", {"a": True})
    assert history.compared_with("wish", {"a": False, "b": False}) == {"a": True, "b": False}
