"""A machine with a plain Python and nothing installed, with or without GPUs, for launch scripts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.fakes.dry_run import Done, bash
from tests.fakes.gpu_machine import SMI


class Bare:
    """`log` contains the packages that would have been installed. `gpus`: GPUs that its nvidia-smi lists; without
    GPUs the program is missing."""

    def __init__(self, folder: Path, gpus: int = 0) -> None:
        self.folder, self.log, self.run = folder, folder / "log", folder / "run"
        python = folder / "python"
        self._program(
            python,
            f'#!/bin/sh\ncase "$*" in *"-m venv"*) echo "$*" >>"{self.log}"; exit 1 ;; esac\n'
            f'exec "{sys.executable}" -S "$@"\n',
        )
        self.env = {"PYTHON": str(python), "VENV": str(folder / "venv"), "RUN_DIR": str(self.run)}
        if gpus:
            self._program(folder / "bin" / "nvidia-smi", SMI.format(gpus=gpus, driver="580.65.06"))
            self.env["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
        self.made = sorted(path.name for path in folder.iterdir())

    def _program(self, path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def start(self, script: str, *words: str, **env: str) -> Done:
        return bash(script, *words, **{**self.env, **env})

    @property
    def is_untouched(self) -> bool:
        return sorted(path.name for path in self.folder.iterdir()) == self.made
