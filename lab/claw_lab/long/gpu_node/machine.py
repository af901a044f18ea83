"""Simulates a machine with GPUs: `nvidia-smi`, a trainer's environment with a torch that is not a CPU build, and
SGLang's Python, which gets the CPU when it asks for CUDA; its `nvcc` exists, and compiles nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from claw_lab import ROOT
from tests.fakes.gpu_machine import SMI

HERE = Path(__file__).parent
STAMPED = ["requirements.txt", "instructions/requirements-gpu.txt", "slime/pyproject.toml"]
SGLANG = """#!/usr/bin/env bash
export SGLANG_USE_CPU_ENGINE=1
words=()
for word in "$@"; do words+=("${{word/#cuda/cpu}}"); done
case "$*" in *child.py*) words+=(--dtype float32 --attention-backend torch_native --max-total-tokens 32768) ;; esac
case " $* " in *" --tp-size 2 "*) export SGLANG_CPU_OMP_THREADS_BIND="0|1" ;; esac
exec {python} "${{words[@]}}"
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def trainer(folder: Path) -> Path:
    """Creates an environment on top of this process's one, whose Python simulates GPUs, with the stamp of a finished
    set-up; bitsandbytes is next to it, as run_tests.sh installs it (tests/requirements-qlora.txt)."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    own = subprocess.run(
        [folder / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [sysconfig.get_path("purelib"), str(Path(sys.prefix, "side")), str(HERE), "import pretend_gpus"]
    Path(own.stdout.strip(), "pretend.pth").write_text("\n".join(lines) + "\n")
    text = b"".join((ROOT / name).read_bytes() for name in STAMPED)
    stamp = subprocess.run(["cksum"], input=text, capture_output=True, check=True)
    (folder / ".installed-instructions-requirements-gpu").write_bytes(stamp.stdout)
    return folder


def environment(folder: Path, sglang: str, gpus: int) -> dict[str, str]:
    """Returns the environment variables of a launch script on this machine. A single GPU is a small one."""
    smi = SMI.format(gpus=gpus, driver="580.65.06")
    small = smi.replace("NVIDIA H100 80GB HBM3, 81559", "NVIDIA GeForce RTX 4090, 24564")
    program(folder / "bin" / "nvidia-smi", small if gpus == 1 else smi)
    program(folder / "bin" / "nvcc", "#!/bin/sh\necho nothing is compiled for a CPU >&2\nexit 1\n")
    python = program(folder / "sglang" / "bin" / "python", SGLANG.format(python=sglang))
    python.with_name("ninja").symlink_to(Path(sglang).with_name("ninja"))
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return {
        **kept, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "VENV": str(trainer(folder / "trainer")),
        "SGLANG_PYTHON": str(python), "PRETENDED_GPUS": str(gpus),
    }  # fmt: skip
