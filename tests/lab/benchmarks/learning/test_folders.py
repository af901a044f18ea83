"""Two model folders on the held-out prompts: replies with the sentence, output, and cached answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from claw_lab.benchmarks.learning import folders
from tests.fakes.gateway_model import build_model
from tests.fakes.scripted_engine import FakeEngine

FOR_LISTS = "Please answer with a list."


def test_rows_compare_replies_of_both_folders_which_are_requested_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = build_model(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"the file that tells versions apart")
    prompts = folders.HintedPrompts.of(folder)
    asked: list[str] = []
    engine = FakeEngine().start()
    engine.say = [*prompts.tokenizer.encode("It rained. That is all."), prompts.stop_ids[0]]

    @contextmanager
    def engine_of(model: Path, *flags: str) -> Iterator[str]:
        before = len(engine.requests)
        yield engine.url
        asked.extend(prompts.tokenizer.decode(one["input_ids"]) for one in engine.requests[before:])

    monkeypatch.setattr(folders, "engine_of", engine_of)
    call = [str(folder), str(folder), "--wish", "brief", "--groups", "in_scope", "capability", "--most", "3"]
    call += ["--replies", str(tmp_path / "replies"), "--before", FOR_LISTS]
    monkeypatch.setattr(sys, "argv", ["folders", *call])
    try:
        folders.main()
        first = json.loads(capsys.readouterr().out)
        folders.main()
        assert json.loads(capsys.readouterr().out) == first
    finally:
        engine.end()
    rows = {row["name"]: row for row in first["rows"]}
    assert rows["wish_1"]["count"] == 3 and rows["wish_1"]["before"] == rows["wish_1"]["now"] == 1.0
    assert len(asked) == 12 and sum(FOR_LISTS in one for one in asked) == 3
