"""The notebook's cells run in order against a gateway, and its format is version 4.5."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests import ROOT
from tests.fakes.running_gateway import RunningGateway

NOTEBOOK = ROOT / "instructions" / "talk_and_learn.ipynb"


def cells(kind: str) -> list[str]:
    found = json.loads(NOTEBOOK.read_text("utf-8"))
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in found["cells"]}) == len(found["cells"])
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in found["cells"])
    return ["".join(cell["source"]) for cell in found["cells"] if cell["cell_type"] == kind]


def test_the_cells_of_the_notebook_run_in_order(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.says("1. Add: 12 + 7 = 19")
    monkeypatch.setenv("OPENCLAW_URL", gateway.url)
    monkeypatch.setenv("SGLANG_API_KEY", "secret-key")
    monkeypatch.delenv("OPENCLAW_ADMIN_KEY", raising=False)
    names: dict[str, Any] = {}
    for text in cells("code"):
        # no judge runs here, so waiting for one would take long
        exec(compile(re.sub("seconds=20", "seconds=0", text), "cell", "exec"), names)
    printed = capsys.readouterr().out
    assert "1. Add: 12 + 7 = 19" in printed and "tokens asked" in printed
    assert names["turn"](0)["state"] == "answered"
    assert len(names["first"]["completion_ids"]) == len(names["first"]["completion_log_probs"])
    names["http"].close()


def test_the_notebook_names_existing_commands() -> None:
    named = set(re.findall(r"\./claw (\w+)", "".join(cells("markdown"))))
    assert named == {"start", "demo"}
