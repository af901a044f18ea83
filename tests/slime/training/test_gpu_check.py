"""The check for a machine with a GPU still runs, tiny and on the CPU: what it calls is what there is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.long.gpu_check import __main__ as gpu_check


def test_sections_of_the_gpu_check_run_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = "about,packed,flex_mask,fused,fsdp,embedded"
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--tiny", "--only", sections, "--out", str(tmp_path)])
    assert gpu_check.main() == 0
    lines = [json.loads(line) for line in (tmp_path / "gpu_check.jsonl").read_text().splitlines()]
    found = {line["section"] for line in lines}
    assert {"about", "packed", "packed.auto", "flex_mask"} <= found
    assert {"fsdp.step", "fsdp.checkpoint", "fsdp.offload", "embedded.decode", "embedded.version"} <= found
    assert lines[-1]["failed"] == []
    gaps = {line["kernel"]: line for line in lines if line["section"] == "packed" and "output" in line}
    assert gaps.keys() == {"auto", "sdpa"} and all(line["output"] < 0.05 for line in gaps.values())


def test_without_a_gpu_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_check"])
    monkeypatch.setattr(gpu_check.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu_check.main()
    assert "--tiny runs on the CPU" in capsys.readouterr().err
