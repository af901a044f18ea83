"""Rows computed from replies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openclaw.progress.asking import Answers
from openclaw.progress.prompts import Item, all_items, chosen
from openclaw.progress.replies import Reply
from openclaw.progress.report import Measured, Row, Wish, as_json, rows_of, summary_of
from openclaw.progress.table import WIDTH, table

BRIEF = Wish("Shorter, please. Two sentences at most.")
UNKNOWN = Wish("Use metric units.")
LONG_TEXT = "It is a long story. " * 20
ITEMS = chosen(all_items(), 6)


def replies(write: Callable[[Item], str]) -> Answers:
    return {item.id: Reply(write(item), log_prob=-0.5) for item in ITEMS}


def by_name(measured: Measured, *wishes: Wish) -> dict[str, Row]:
    return {row.name: row for row in rows_of(measured, wishes)}


def learned(item: Item) -> str:
    """Brief on everyday questions, unchanged elsewhere."""
    return "It depends. Try it." if item.group == "in_scope" else before(item)


def before(item: Item) -> str:
    return f"{item.answer}." if item.answer else LONG_TEXT


def test_a_model_that_learned_without_losses_has_a_perfect_report() -> None:
    measured = Measured(ITEMS, replies(before), replies(learned), replies(lambda item: "Yes."))
    rows = by_name(measured, BRIEF)
    wish = rows["wish_1"]
    assert (wish.before, wish.now, wish.prompted, wish.count) == (0.0, 1.0, 1.0, 6)
    assert wish.p == pytest.approx(2 / 2**6) and wish.interval is not None and wish.interval[0] > 0.5
    for place in ("question", "system", "complaint"):
        row = rows[f"opposite_{place}"]
        assert (row.before, row.now, row.prompted, row.p) == (1.0, 1.0, 0.0, 1.0)
    assert (rows["facts"].before, rows["facts"].now, rows["facts"].prompted) == (1.0, 1.0, 0.0)
    assert (rows["unrelated_changed"].now, rows["unrelated_changed"].prompted) == (0.0, 1.0)
    assert rows["unrelated_like"].now == 1.0 and rows["words"].now == 4.0
    assert summary_of(measured, [BRIEF]) == {"S_in": 1.0, "S_out": 0.0, "S": 1.0}


def test_a_habit_that_overrides_explicit_requests_is_detected() -> None:
    measured = Measured(ITEMS, replies(before), replies(lambda item: "Yes."), None)
    rows = by_name(measured, BRIEF)
    assert rows["opposite_question"].now == 0.0 and (rows["opposite_question"].p or 1) < 0.05
    assert rows["unrelated_changed"].now == 1.0 and rows["facts"].now == 0.0
    assert summary_of(measured, [BRIEF]) == {"S_in": 1.0, "S_out": 1.0, "S": 0.5}


def test_an_opening_that_nobody_asked_for_and_repetition_are_reported() -> None:
    def quoted(item: Item) -> str:
        return f'"{before(item)}' if item.id in {one.id for one in measured_items[:4]} else "Yes."

    measured_items = [item for item in ITEMS if item.group == "in_scope"]
    rows = by_name(Measured(ITEMS, replies(before), replies(quoted), None), BRIEF)
    grown, repeating = rows["opening"], rows["repeating"]
    assert (grown.label, grown.before, grown.now) == ('replies that begin with: "', 0.0, pytest.approx(4 / 6))
    assert (repeating.before, repeating.now) == (1.0, pytest.approx(4 / 6))


def test_a_preference_without_a_known_form_is_measured_by_similarity() -> None:
    def metric(item: Item) -> str:
        return "It is 3 metres and 2 kilograms." if item.group == "in_scope" else before(item)

    measured = Measured(ITEMS, replies(before), replies(metric), replies(metric))
    row = by_name(measured, UNKNOWN)["wish_1"]
    assert (row.before, row.now, row.count) == (0.0, 1.0, 6) and "likeness" in row.label
    assert summary_of(measured, [UNKNOWN]) == {}


def test_preferences_for_the_same_form_share_a_row() -> None:
    measured = Measured(ITEMS, replies(before), replies(learned), replies(learned))
    again = Wish("Please keep it short.")
    rows = by_name(measured, BRIEF, UNKNOWN, again)
    assert rows["wish_1"].label == "wish 1, 3 held out (brief)" and "wish_3" not in rows
    assert summary_of(measured, [BRIEF, again])["S_in"] == 1.0


def test_without_the_first_models_replies_only_known_results_are_reported() -> None:
    rows = by_name(Measured(ITEMS, None, replies(learned), None), BRIEF, UNKNOWN)
    assert (rows["wish_1"].before, rows["wish_1"].now, rows["wish_1"].p) == (None, 1.0, None)
    assert not {"wish_2", "unrelated_changed", "unrelated_like", "opening"} & rows.keys()


def test_the_table_fits_a_hundred_columns() -> None:
    measured = Measured(ITEMS, replies(before), replies(learned), replies(learned))
    wishes = [Wish("shorter, no lists, and a friendly hello " + "please " * 40), UNKNOWN]
    report = {
        "time": 0.0,
        "model": "m",
        "live": 3,
        "base": "version 0, sampled now next to the live version " * 4,
        "prompted": "version 0 with all preferences in its prompt",
        "rows": as_json(rows_of(measured, wishes)),
        "summary": summary_of(measured, wishes),
    }
    told = [{"text": wish.text, "at": 0.0} for wish in wishes]
    text = table(report, told, [{**report, "live": version} for version in range(20)])
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "version   19" in text and "version    3  " not in text
