from __future__ import annotations

from openclaw_test.loop.side_by_side import side_by_side


def test_both_answers_are_shown_in_columns() -> None:
    shown = side_by_side("2+3?", "1. **Add** them, which gives five.\n2. **5**", "2 + 3 is 5.", width=43)
    assert shown.splitlines() == [
        "one answer to: 2+3?",
        "before               | after",
        "-------------------- | --------------------",
        "1. **Add** them,     | 2 + 3 is 5.",
        "which gives five.    |",
        "2. **5**             |",
    ]


def test_missing_answers_and_narrow_terminals_are_handled() -> None:
    shown = side_by_side("Why?", "", "x" * 30, width=5)
    assert "(no answer)"[:8] in shown and max(map(len, shown.splitlines())) <= 24
