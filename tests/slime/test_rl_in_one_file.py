"""Tests the whole loop in one file: it runs, learns and rejects no request while weights change."""

from __future__ import annotations

from slime.plugins import load_attr
from tests import MODEL, ROOT

FILE = ROOT / "slime" / "examples" / "rl_in_one_file.py"
MOST_LINES = 250


def test_the_recipe_learns_while_it_serves() -> None:
    curve, visitor = load_attr(f"{FILE}:run")(str(MODEL), updates=5, questions=8, answers=8, seed=1)
    assert curve[-1] > curve[0] + 0.1, curve
    assert visitor.failures == 0 and visitor.answers > 0


def test_the_recipe_file_is_short() -> None:
    assert len(FILE.read_text().splitlines()) <= MOST_LINES
