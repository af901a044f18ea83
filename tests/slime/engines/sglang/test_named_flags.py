"""Tests that the long test checks every SGLang flag that we name against a real SGLang."""

from __future__ import annotations

import importlib.util
from typing import Any

from tests import ROOT


def test_every_named_flag_of_sglang_has_a_value_for_the_long_test() -> None:
    spec = importlib.util.spec_from_file_location(
        "named_flags", ROOT / "lab" / "claw_lab" / "long" / "named_flags.py"
    )
    assert spec is not None and spec.loader is not None
    tool: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.named() == set(tool.VALUES)
