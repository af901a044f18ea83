"""The GPU check on a machine that is available for minutes: a Python with torch, no network, and a time limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from claw_lab import environment
from claw_lab.long.gpu_check import __main__ as gpu_check
from claw_lab.long.gpu_check import packages, plan
from tests import FAKES, ROOT


def test_the_check_runs_with_the_packages_and_older_versions_of_a_gpu_machine(
    tmp_path: Path,
) -> None:
    """Its packages are simulated by an import hook, with the signatures of torch 2.11 and transformers 5.17."""
    sections = "about,packed,probe,embedded,megatron,fsdp,fsdp_fused"
    command = [sys.executable, str(FAKES / "bare_gpu_machine.py"), "--tiny", "--only", sections]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "gpu_check.jsonl").read_text().splitlines()]
    assert lines[0]["given"] == ["varlen_attn(enable_gqa=)", "activation_checkpointing_enable"]
    skipped = {line["section"]: line["skipped"] for line in lines if "skipped" in line}
    assert skipped == {
        "embedded": "pydantic is not installed: --prepare brings it",
        "megatron": "megatron-core is not installed",
    }
    assert {"packed", "probe", "fsdp.step", "fsdp_fused.off.step"} <= {line["section"] for line in lines}


def test_the_command_installs_nothing_if_a_python_has_torch(tmp_path: Path) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "VENV": str(tmp_path / "none"),
        "PYTHON": sys.executable,
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        ["bash", "lab/run.sh", "long.gpu_check", "--help"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "--prepare" in done.stdout, done.stderr
    assert not (tmp_path / "none").exists()


def test_parts_have_time_limits_and_keep_results_from_before_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hanging part costs its own time limit; parts that did not start in time are listed."""
    monkeypatch.setattr(plan, "LEAST", 1.0)
    line = {"section": "ipc", "equal": True}

    def command(part: plan.Part, out: Path) -> list[str]:
        code = (
            f"print(open({str(out / plan.LINES)!r}, 'a').write({json.dumps(line)!r} + chr(10)), flush=True)"
        )
        return ["/bin/sh", "-c", f'"{sys.executable}" -c "$0"; {part.sections}', code]

    parts = [plan.Part(*part) for part in (("exit 0", 20), ("exit 3", 20), ("sleep 600", 600), ("true", 600))]
    began = time.monotonic()
    assert plan.run(tmp_path, 4, parts, command) == 1
    assert time.monotonic() - began < 20
    lines = [json.loads(text) for text in (tmp_path / plan.LINES).read_text().splitlines()]
    told = [(one["part"], one.get("status")) for one in lines if one["section"] == "part"]
    assert told == [("exit 0", 0), ("exit 3", 3), ("sleep 600", 124), ("true", None)]
    assert lines.count(line) == 3 and plan.summary(tmp_path)[-1] == "ok  ipc.equal 1 [1, inf]"
    assert (tmp_path / plan.LOG).exists()


def test_every_section_belongs_to_a_part_that_fits_a_run_of_ten_minutes() -> None:
    named = [name for part in plan.PARTS for name in part.sections.split(",")]
    assert sorted(named) == sorted(gpu_check.SECTIONS)
    assert plan.SECONDS <= 560 and {bar.section.split(".")[0] for bar in plan.BARS} <= set(named)
    assert plan.Bar("packed", "output", most=0.03).judge({"section": "packed", "output": 0.04}) == (
        "NOT packed.output 0.04 [-inf, 0.03]"
    )


def test_bundled_packages_are_pinned_reduced_and_unpacked_for_their_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = dict(pin.split("==") for pin in packages.pinned_packages())
    required = (ROOT / "requirements.txt").read_text()
    assert f"transformers=={pins['transformers']}" in required and pins["megatron-core"][0].isdigit()
    wheel = tmp_path / "bitsandbytes-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("b/__init__.py", "b/libbitsandbytes_cuda124.so", "b/libbitsandbytes_cuda130.so"):
            archive.writestr(name, "")
    packages.slim(wheel)
    monkeypatch.setenv("PYTHONPATH", "/before")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(packages, "PYTHON", (3, 0))
    assert packages.unpacked(tmp_path) is None, "compiled for another Python"
    monkeypatch.setattr(packages, "PYTHON", sys.version_info[:2])
    for _ in range(2):
        site = packages.unpacked(tmp_path)
        assert (
            site is not None and os.environ["PYTHONPATH"].startswith(str(site)) and sys.path[0] == str(site)
        )
        assert sorted(path.name for path in (site / "b").iterdir()) == [
            "__init__.py", "libbitsandbytes_cuda130.so",
        ]  # fmt: skip
