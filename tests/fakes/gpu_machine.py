"""A machine with GPUs for launch scripts: nvidia-smi, and Pythons that record their arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import ROOT
from tests.fakes.dry_run import Done, bash

TINY = ROOT / "openclaw-test/tiny_claw/model"
SMI = """#!/bin/sh
case "$*" in
  *name,memory.total\ *) for n in $(seq {gpus}); do echo "NVIDIA H100 80GB HBM3, 81559"; done ;;
  *-L*) for n in $(seq {gpus}); do echo "GPU $n: NVIDIA H100 (UUID: GPU-$n)"; done ;;
  *) for n in $(seq {gpus}); do echo "NVIDIA H100 80GB HBM3, 81559 MiB, {driver}"; done ;;
esac
"""
PYTHON = """#!/bin/sh
case "$*" in
  *start_check* | *fcntl* | *slime.plan.*) exec "{python}" "$@" ;;
  *'version("torch")'*) echo "{torch}"; exit 0 ;;
  *find_spec*) exit 1 ;;
  *version_info*) echo 3.11; exit 0 ;;
  *'import pip'*) exit 0 ;;
esac
printf '%s ' "$(basename "$(dirname "$(dirname "$0")")")" "$@" >>"{log}"
printf 'connections=%s SGLANG_PYTHON=%s\\n' "$CUDA_DEVICE_MAX_CONNECTIONS" "$SGLANG_PYTHON" >>"{log}"
"""


class GpuMachine:
    """`env`: variables with which a script starts on it; `log`: arguments of its Pythons, one line per call."""

    def __init__(self, folder: Path, gpus: int = 8, driver: str = "580.65.06", torch: str = "2.13.0") -> None:
        self.folder, self.log = folder, folder / "log"
        self._program(folder / "bin" / "nvidia-smi", SMI.format(gpus=gpus, driver=driver))
        for name in ("trainer", "trainer-sglang"):
            script = PYTHON.format(python=sys.executable, torch=torch, log=self.log)
            self._program(folder / name / "bin" / "python", script)
            self._torch(folder / name, None if "cpu" in torch else "13.0")
        files = ["requirements.txt", "instructions/requirements-gpu.txt", "slime/pyproject.toml"]
        text = b"".join((ROOT / name).read_bytes() for name in files)
        stamp = subprocess.run(["cksum"], input=text, capture_output=True, check=True).stdout.decode()
        (folder / "trainer" / ".installed-instructions-requirements-gpu").write_text(stamp)
        self.model = folder / "model"
        self.model.mkdir()
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            if (TINY / name).is_file():
                shutil.copy(TINY / name, self.model)
        (self.model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        self.env = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "VENV": str(folder / "trainer"), "HF_CKPT": str(self.model),
            "RUN_DIR": str(folder / "run"), "HOST": "127.0.0.1",
        }  # fmt: skip

    def _torch(self, environment: Path, cuda: str | None) -> None:
        version = environment / "lib" / "python3.12" / "site-packages" / "torch" / "version.py"
        version.parent.mkdir(parents=True)
        version.write_text(f"cuda: Optional[str] = {cuda!r}\n")

    def _program(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)

    def bash(self, *words: str, cwd: Path = ROOT, **env: str) -> Done:
        return bash(*words, cwd=cwd, **{**self.env, **env})

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []
