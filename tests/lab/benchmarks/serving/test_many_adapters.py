"""The benchmark of many adapters runs on a model of a few thousand parameters, and prints the values of its
report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from claw_lab.benchmarks.serving import many_adapters
from tests.fakes.tiny_engine_model import save_model


def test_a_run_prints_speed_memory_and_the_update_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--streams", "3", "--loaded", "4", "--prompt-tokens", "5", "--tokens", "6", "--rounds", "1"]
    monkeypatch.setattr(
        sys, "argv", ["many_adapters", "--model-path", str(save_model(tmp_path, seed=1)), *words]
    )
    monkeypatch.setattr(many_adapters, "USUAL_STEPS", 3)
    many_adapters.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["many_to_one"] > 0 and found["factors_mib"] > 0
    assert found["loaded"] == 4 and {"base", "one", "many", "before_any_adapter"} <= found.keys()
    assert found["update"]["to_first_token_ms"] > 0 and found["update"]["step_ms"] > 0
