"""The held-out prompts: five classes, none of them used for training."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from openclaw.progress.forms import FORMS
from openclaw.progress.prompts import FOLDER, GROUPS, PLACES, all_items, chosen
from tests import ROOT


def test_each_class_has_200_prompts_of_several_writers() -> None:
    counts = Counter(item.group for item in all_items())
    assert set(counts) == set(GROUPS) and min(counts.values()) >= 200
    for group in GROUPS:
        assert len({item.writer for item in all_items() if item.group == group}) >= 3
    assert len({item.id for item in all_items()}) == len(all_items())


def test_every_prompt_can_be_judged() -> None:
    for item in all_items():
        assert item.messages[-1]["role"] == "user"
        assert (item.group == "capability") == (item.answer is not None)
        if item.group == "opposite":
            assert item.place in PLACES and item.pole in FORMS
            assert item.form is None or re.compile(item.form)


def test_a_smaller_choice_is_a_subset_of_a_larger_one() -> None:
    small, large = ([item.id for item in chosen(all_items(), most)] for most in (3, 9))
    assert set(small) < set(large) and len(chosen(all_items(), 0)) == len(all_items())
    assert Counter(item.group for item in chosen(all_items(), 3))["in_scope"] == 3


def texts_of(value: object) -> set[str]:
    """Returns every text in parsed JSON, in lower case and without punctuation."""
    if isinstance(value, str):
        return {" ".join(re.findall(r"\w+", value.lower()))}
    if isinstance(value, dict):
        return set().union(*map(texts_of, value.values())) if value else set()
    return set().union(*map(texts_of, value)) if isinstance(value, list) and value else set()


def shipped_for_training() -> list[Path]:
    """Returns files with prompts for training, anchors and the gate."""
    data = sorted((ROOT / "openclaw").rglob("data/*.json*"))
    other = [path for path in data if FOLDER not in path.parents]
    return [*other, *sorted((ROOT / "launch").glob("gate_*.jsonl"))]


def test_no_prompt_of_the_reports_is_in_training_or_gate_data() -> None:
    lines = [line for path in sorted(FOLDER.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    held_out = {
        text for line in lines for text in texts_of(json.loads(line)["messages"]) if len(text.split()) > 2
    }
    assert len(held_out) > 1000
    for path in shipped_for_training():
        for line in path.read_text("utf-8").splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            assert not held_out & texts_of(json.loads(line)), path
