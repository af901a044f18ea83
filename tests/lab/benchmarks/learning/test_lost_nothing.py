"""The benchmark of five classes, on synthetic answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from claw_lab.benchmarks.learning import lost_nothing
from claw_lab.report.measurement import read_run
from openclaw.chat.client import Server
from openclaw.progress.asking import entropy_of
from openclaw.progress.replies import Reply
from openclaw.types import Message

WISH = "Shorter, please: one or two sentences."


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model `before` writes long texts, `after` one sentence."""

    class Model:
        def __init__(self, server: Server, max_tokens: int, top: int) -> None:
            self.text = "It is a long story. " * 20 if "before" in server.url else "It depends."

        def __call__(self, conversations: Sequence[list[Message]]) -> list[Reply]:
            return [Reply(self.text, True, -0.5, 1.25) for _ in conversations]

    monkeypatch.setattr(lost_nothing, "LiveModel", Model)


def test_two_servers_are_compared_in_rows_and_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "learning" / "lost-nothing.2026-11-27.json"
    file.parent.mkdir()
    pair = ["--before", "http://before", "--after", "http://after", "--wish", WISH, "--report", str(file)]
    assert lost_nothing.main([*pair, "--sample", "3", "--prompted", "--model", "made up"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows: dict[str, Any] = {row["name"]: row for row in found["rows"]}
    assert (rows["wish_1"]["before"], rows["wish_1"]["now"]) == (0.0, 1.0)
    assert rows["opposite_question"]["now"] == 0.0 and rows["entropy"]["now"] == 1.25
    assert found["summary"] == {"S_in": 1.0, "S_out": 1.0, "S": 0.5}
    written = json.loads(file.read_text())
    assert written["conditions"]["model"] == "made up"
    assert read_run("learning/lost-nothing.2026-11-27", {**written, "date": "2026-11-27"}).measurements
    assert {"s-in", "wish-1", "facts", "entropy"} <= {one["id"] for one in written["measurements"]}


def test_answers_are_saved_and_compared_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "before.json"
    assert lost_nothing.main(["--before", "http://before", "--save", str(file), "--sample", "2"]) == 0
    pair = ["--before", str(file), "--after", "http://after", "--wish", WISH]
    assert lost_nothing.main([*pair, "--sample", "1"]) == 0
    capsys.readouterr()
    assert lost_nothing.main([*pair, "--sample", "9"]) == 1
    assert "has no answer to" in capsys.readouterr().err
    assert lost_nothing.main([*pair, "--sample", "1", "--max-tokens", "200"]) == 1
    assert "not of 200" in capsys.readouterr().err
    assert lost_nothing.main([*pair, "--prompted"]) == 2


@pytest.mark.parametrize("words", [["--before", "http://before"], ["--before", "x", "--after", "y"]])
def test_incomparable_answers_are_rejected(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        lost_nothing.main(words)
    assert ended.value.code == 2


def test_the_entropy_at_a_position_counts_all_unlikely_tokens_as_one() -> None:
    half = {"logprob": -0.6931471805599453}
    assert entropy_of([half, half]) == pytest.approx(0.6931471805599453)
    assert entropy_of([half]) == pytest.approx(0.6931471805599453)
