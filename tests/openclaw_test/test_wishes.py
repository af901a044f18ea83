"""Explicit requests: compliance, loss through a habit, and the use of each wording."""

from __future__ import annotations

import random

import pytest
import torch

from claw_lab.tiny_models.tiny_claw import wishes as anchor_wishes
from claw_lab.tiny_models.tiny_claw.generation import Helper
from openclaw_test.people import tastes
from openclaw_test.people.wishes import KINDS, PLACES, Case, cases, form, obedience, wordings
from tests import ROOT
from tiny_claw import wordings as trained
from tiny_claw.manners import Style, write_reply
from tiny_claw.problems import Problem

STYLES = {
    "list": Style("list"),
    "number": Style("bare"),
    "friendly": Style("prose", "warm"),
    "detailed": Style("prose"),
}


def said_elsewhere() -> set[str]:
    """Returns all texts that tiny-claw was trained on or is evaluated with, including those of scripted people."""
    tables = [
        *trained.MANNER_HINTS.values(),
        *trained.TRAIT_HINTS.values(),
        *trained.MANNER_COMPLAINTS.values(),
    ]
    tables += [trained.LOST_STEPS_COMPLAINTS, trained.WRONG_RESULT_COMPLAINTS, trained.THANKS]
    found = {
        text.format(verb=verb)
        for table in tables
        for split in table.values()
        for text in split
        for verb in trained.VERBS
    }
    found |= {text for texts in tastes.COMPLAINTS.values() for text in texts}
    return found | {text for said in trained.written().values() for texts in said.values() for text in texts}


def plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalpha() or letter == " ").strip()


def texts_of(split: str) -> set[str]:
    kinds = wordings()[split]  # type: ignore[index]
    return {plain(text) for places in kinds.values() for texts in places.values() for text in texts}


def test_no_wording_is_in_two_splits_or_in_training_texts() -> None:
    search, report, blind = (texts_of(split) for split in ("search", "report", "blind"))
    assert not search & report and not blind & (search | report)
    assert not (search | report | blind) & {plain(text) for text in said_elsewhere()}


def test_anchor_requests_of_tiny_claw_are_never_used_in_measurements() -> None:
    lines = anchor_wishes.read()
    said = {kind: set(anchor_wishes.sentences(kind)) for kind in anchor_wishes.KEPT}
    counts = {kind: len(said[kind].intersection(lines)) for kind in said}
    asked = {text for kind in anchor_wishes.KEPT for text in trained.written()[kind]["asked"]}
    freely = asked.intersection(lines)
    freely -= set().union(*said.values())
    assert counts == anchor_wishes.KEPT and len(freely) > 1000
    assert sum(counts.values()) + len(freely) == len(lines) == len(set(lines))
    measured = texts_of("search") | texts_of("report") | texts_of("blind")
    assert not {plain(line) for line in lines} & measured


def test_the_untrained_model_follows_the_anchors_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchor_wishes, "ASKED", 6)
    helper = Helper(ROOT / "openclaw-test/tiny_claw/model")
    torch.manual_seed(0)
    known = sorted(set(anchor_wishes.read()).intersection(anchor_wishes.sentences("list")))
    shares = anchor_wishes.obedience(helper, "list", known[::40])
    assert len(shares) == 4 and sum(shares.values()) / len(shares) > 0.75
    assert anchor_wishes.obedience(helper, "number", ["Write it at length."])["Write it at length."] < 0.5


def test_every_form_is_requested_in_every_place_and_split() -> None:
    for split in ("search", "report", "blind"):
        found = {(case.kind, case.place) for case in cases(split, 4)}
        assert found == {(kind, place) for kind in KINDS for place in PLACES}
        assert cases(split, 4) == cases(split, 4)


def reply_as_asked(case: Case, seed: int = 0) -> str:
    return write_reply(random.Random(seed), case.problem, STYLES[case.kind])


def test_a_model_that_follows_requests_scores_one_everywhere() -> None:
    asked = cases("search", 6)
    found = obedience(asked, [reply_as_asked(case) for case in asked])
    assert found.lists == dict.fromkeys(PLACES, 1.0)
    assert found.kinds == dict.fromkeys(KINDS, 1.0)


def test_a_habit_that_overrides_requests_fails_the_check() -> None:
    asked = cases("search", 6)
    obeyed = obedience(asked, [reply_as_asked(case) for case in asked])
    habit = obedience(asked, [f"Since 1 + 1 = 2, X now has 2 {case.problem.item}." for case in asked])
    assert obeyed.kept(obeyed)
    assert not habit.kept(obeyed)
    assert habit.lists == dict.fromkeys(PLACES, 0.0)
    assert habit.forms < obeyed.forms
    assert habit.spread < obeyed.spread


def test_a_loss_in_one_place_fails_the_threshold() -> None:
    asked = cases("search", 6)
    replies = [reply_as_asked(case) for case in asked]
    before = obedience(asked, replies)
    after = obedience(
        asked,
        [
            "So it is 5 and nothing else here." if (case.kind, case.place) == ("list", "system") else reply
            for case, reply in zip(asked, replies, strict=True)
        ],
    )
    assert after.lists["question"] == 1.0
    assert not after.kept(before)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Tom has 5 apples.", "Tom has 17 apples.", True),
        ("Tom has 5 apples.", "So there are 5 apples.", False),
    ],
)
def test_a_form_is_the_reply_without_numbers_and_words_of_the_question(
    one: str, other: str, same: bool
) -> None:
    problem = Problem("Tom has 3 apples and buys 2. How many apples?", "add", (), "Tom", "he", "apples")
    assert (form(problem, one) == form(problem, other)) is same
