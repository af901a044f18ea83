"""The GPU check still runs with tiny sizes on the CPU, so its calls are valid."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from claw_lab.long.gpu_check import __main__ as gpu_check
from claw_lab.long.gpu_check import kernels
from slime.training.attention.kernels import packed_attention
from slime.training.fsdp import FSDPTrainer

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"


@pytest.fixture(autouse=True)
def own_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resets the check's allocator settings after a test."""
    monkeypatch.setenv(ALLOCATOR, "")
    monkeypatch.delenv(ALLOCATOR)


def test_sections_of_the_gpu_check_run_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = "about,packed,probe,ipc,flex_mask,fused,fsdp,embedded,large"
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--tiny", "--only", sections, "--out", str(tmp_path)])
    assert gpu_check.main() == 0
    lines = [json.loads(line) for line in (tmp_path / "gpu_check.jsonl").read_text().splitlines()]
    found = {line["section"] for line in lines}
    assert {"about", "packed", "packed.auto", "flex_mask"} <= found
    assert {
        "fsdp.step",
        "fsdp.checkpoint",
        "fsdp.offload",
        "embedded.decode",
        "embedded.version",
        "large.version",
    } <= found
    [served] = [line for line in lines if line["section"] == "probe"]
    assert served["of_text"] and served["text"] <= served["allowed"]
    assert next(line for line in lines if line["section"] == "ipc")["equal"]
    assert lines[-1]["failed"] == []
    assert os.environ[ALLOCATOR] == "expandable_segments:True"
    gaps = {line["kernel"]: line for line in lines if line["section"] == "packed" and "output" in line}
    assert gaps.keys() == {"auto", "sdpa"} and all(line["output"] < 0.05 for line in gaps.values())


def spoiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, section: str) -> str:
    """Returns the check's output for a failing section."""
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--tiny", "--only", section, "--out", str(tmp_path)])
    assert gpu_check.main() == 1
    *_, line, end = [json.loads(line) for line in (tmp_path / "gpu_check.jsonl").read_text().splitlines()]
    assert end["failed"] == [section]
    error: str = line["error"]
    return error


def test_a_kernel_that_attends_beyond_its_mask_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sequence fewer: the last one continues after the end of the previous one."""

    def joined(*given: Any, packed_layout: Any, **named: Any) -> Any:
        if given[1].dtype == torch.bfloat16:
            *others, last, behind = packed_layout
            packed_layout = (*others, (last[0] + behind[0],))
        return packed_attention(*given, packed_layout=packed_layout, **named)

    monkeypatch.setitem(kernels.KERNELS, "sdpa", joined)
    assert "Wrong: sdpa with window None" in spoiled(monkeypatch, tmp_path, "packed")


def test_a_kernel_that_cannot_run_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object, **named: object) -> Any:
        raise RuntimeError("no such image")

    monkeypatch.setitem(kernels.KERNELS, "auto", broken)
    for section in ("packed", "speed"):
        assert "auto: RuntimeError: no such image" in spoiled(monkeypatch, tmp_path / section, section)


def test_wrong_results_of_a_fused_layer_or_a_backend_fail_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "rms_norm", lambda x, weight, epsilon: x * weight)
    assert "Wrong: norm fused" in spoiled(monkeypatch, tmp_path / "fused", "fused")
    monkeypatch.setattr(FSDPTrainer, "log_probs", lambda self, samples: [[-6.2] * 8 for _ in samples])
    assert "fsdp sdpa" in spoiled(monkeypatch, tmp_path / "agreement", "agreement")


def test_without_a_gpu_it_prints_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_check"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu_check.main()
    assert "--tiny runs on the CPU" in capsys.readouterr().err
