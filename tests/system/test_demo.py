"""Tests the demo as printed in the README: the model learns a preference while one watches, and forgets nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from claw_base.ports import free_port
from tests import ROOT

SCRIPT = ROOT / "openclaw-combine" / "run_tiny_openclaw_topk_select.sh"
KEYS = (
    "preference_before",
    "preference_after",
    "accuracy_before",
    "accuracy_after",
    "sessions_to_three",
    "versions",
    "failed_requests",
    "longest_gap_s",
    "seconds",
)


@pytest.mark.timeout(560)
def test_demo_ends_with_a_model_that_has_learned(tmp_path: Path) -> None:
    env = {**os.environ, "PORT": str(free_port()), "RUN_DIR": str(tmp_path / "run")}
    demo = subprocess.run(
        ["bash", str(SCRIPT), "--demo"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert demo.returncode == 0, demo.stderr[-3000:]
    result = json.loads(demo.stdout.splitlines()[-1])
    assert set(KEYS) <= set(result)
    assert result["preference_before"] <= 0.35
    # One run on a busy machine, possibly stopped by the clock: the effect of learning over many seeds, and its cost,
    # is measured by lab/claw_lab/benchmarks/learning/sessions_to_preference.py.
    assert result["preference_after"] >= result["preference_before"] + 0.4
    assert result["accuracy_before"] >= 0.97
    assert result["accuracy_after"] >= result["accuracy_before"] - 0.03
    assert result["versions"] >= 3
    assert result["failed_requests"] == 0
