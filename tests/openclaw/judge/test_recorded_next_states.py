"""The lists of recorded next states are whole and apart; data/recorded/README.md says how they were made."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from claw_lab import environment

RECORDED = Path(__file__).parent / "data" / "recorded"
FIELDS = {
    "id", "kind", "language", "clear", "label", "passes", "hint", "asked", "response", "next", "exit_code",
}  # fmt: skip
KINDS = {"tool": "tool", "person-new-request": "user", "person-other": "user"}

Line = dict[str, Any]


@pytest.fixture(scope="module")
def lists() -> dict[str, list[Line]]:
    return {
        path.stem: [orjson.loads(line) for line in path.read_bytes().splitlines()]
        for path in RECORDED.glob("*.jsonl")
    }


@pytest.fixture(scope="module")
def lines(lists: dict[str, list[Line]]) -> list[Line]:
    return [line for rows in lists.values() for line in rows]


def group(line: Line) -> str:
    """What all forms of one command share."""
    return str(line["id"]).split("-")[0]


def test_every_line_has_all_fields_and_the_role_of_its_kind(lines: list[Line]) -> None:
    for line in lines:
        assert set(line) == FIELDS
        assert [message["role"] for message in line["next"]] == [KINDS[line["kind"]]]
        assert line["asked"] and line["response"] and re.fullmatch("[a-z]{2}", line["language"])
        assert (line["exit_code"] is None) == (line["kind"] != "tool")


def test_a_line_is_clear_if_two_passes_gave_the_same_label(lines: list[Line]) -> None:
    for line in lines:
        assert line["label"] in line["passes"] and {*line["passes"]} <= {-1, 0, 1}
        assert line["clear"] == (len({*line["passes"]}) == 1)


def test_only_complaints_of_people_have_a_hint_and_new_requests_have_label_0(lines: list[Line]) -> None:
    for line in lines:
        if line["hint"] is not None:
            assert line["label"] == -1 and line["kind"] == "person-other" and line["hint"].strip()
        assert line["kind"] != "person-new-request" or line["label"] == 0


def test_a_hash_of_the_id_selects_the_list_of_a_line(lists: dict[str, list[Line]]) -> None:
    assert set(lists) == {"tune", "held_out"}
    for name, rows in lists.items():
        for line in rows:
            left = int(hashlib.sha256(group(line).encode()).hexdigest(), 16) % 100
            assert name == ("tune" if left < 40 else "held_out"), line["id"]


def test_the_lists_share_no_id_and_no_command(lists: dict[str, list[Line]], lines: list[Line]) -> None:
    assert max(Counter(line["id"] for line in lines).values()) == 1
    tune, held_out = ({group(line) for line in lists[name]} for name in ("tune", "held_out"))
    assert not tune & held_out
    said, unseen = (
        {line["next"][0]["content"] for line in lists[name] if line["kind"] != "tool"}
        for name in ("tune", "held_out")
    )
    assert not said & unseen


def test_there_are_enough_lines_of_every_kind(lines: list[Line]) -> None:
    kinds = Counter(line["kind"] for line in lines)
    assert len(lines) >= 500 and kinds["tool"] >= 260 and kinds["person-new-request"] >= 60
    failing = sum(line["exit_code"] != 0 for line in lines if line["kind"] == "tool")
    assert 0.4 <= failing / kinds["tool"] <= 0.6


def test_no_line_contains_names_of_the_recording_machine(lines: list[Line]) -> None:
    ours = re.compile(r"/root\b|/work/|/tmp/(?!cc)|pyenv|\b(?:10|172|192)\.\d+\.\d+\.\d+")
    found = [line["id"] for line in lines if ours.search(orjson.dumps(line).decode())]
    assert not found


def test_the_benchmark_measures_recorded_lines(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    told = {"language": "en", "clear": True, "asked": "Run it.", "response": "bash(make)", "hint": None}
    rows = [
        {
            **told,
            "id": "a",
            "kind": "tool",
            "label": -1,
            "next": [{"role": "tool", "content": '{"exit_code": 2}'}],
        },
        {
            **told,
            "id": "b",
            "kind": "person-other",
            "label": 1,
            "next": [{"role": "user", "content": "Thank you!"}],
        },
    ]
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    command = [sys.executable, "-m", "claw_lab.benchmarks.learning.judge_agreement", "--recorded", str(path)]
    shown = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    report = orjson.loads(shown.stdout)["lists"]["some"]
    assert report["clear"] == {"lines": 2, "right": 1.0, "opposite": 0.0, "invented": None, "missed": 0.0}
    assert report["kinds"]["tool"]["right"] == report["languages"]["en"]["right"] == 1.0
    assert (report["failing_commands"], report["failing_commands_judged_good"]) == (1, 0)
    assert report["hints_of_label_0"] is None and report["hints_of_label_1"] == 0.0
