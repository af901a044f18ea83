"""The OpenClaw program on this machine: its version and its own report of its settings."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OLDEST_FOR_PLUGIN = (2026, 9)
"""OpenClaw 2026.3 has no API for a plug-in to wrap a provider's calls."""
OLDEST_THAT_VALIDATES = (2026, 3)
SECONDS = 60


@dataclass(frozen=True)
class Program:
    """The installed OpenClaw; `version` is (year, month, ...), () if unknown; `problem`: why it does not run."""

    path: str | None
    version: tuple[int, ...] = ()
    problem: str | None = None

    @property
    def can_load_plugin(self) -> bool:
        """Returns whether it can; True also if OpenClaw is not installed here or does not report its version."""
        return not self.version or self.version[:2] >= OLDEST_FOR_PLUGIN

    @property
    def shown(self) -> str:
        return ".".join(map(str, self.version)) or "of unknown version"


def find_program() -> Program:
    """Finds the program on PATH."""
    path = shutil.which("openclaw")
    if path is None:
        return Program(
            None,
            problem="openclaw is not on PATH; install it with: npm install -g openclaw (it needs Node 24)",
        )
    code, text = _run([path, "--version"])
    if code != 0:
        return Program(path, problem=f"{path} does not run, so its version and settings were not checked: "
                       f"{_first_lines(text)} (OpenClaw needs a current Node on PATH)")  # fmt: skip
    match = re.search(r"(\d{4})\.(\d+)\.(\d+)", text)
    return Program(path, tuple(map(int, match.groups())) if match else ())


def complaint(program: Program, config: Path) -> str | None:
    """Returns OpenClaw's complaint about its settings; None if it has none, is not installed, or is too old to ask."""
    too_old = program.version and program.version[:2] < OLDEST_THAT_VALIDATES
    if program.path is None or program.problem or too_old:
        return None
    code, text = _run([program.path, "config", "validate"], OPENCLAW_CONFIG_PATH=str(config))
    return None if code == 0 else _first_lines(text)


def _run(command: list[str], **variables: str) -> tuple[int, str]:
    words = ["env", *(f"{name}={value}" for name, value in variables.items()), *command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return 1, f"{' '.join(command)} did not answer within {SECONDS} s"
    return done.returncode, done.stdout + done.stderr


def _first_lines(text: str) -> str:
    return " ".join(line.strip() for line in text.strip().splitlines()[:4]) or "it failed without a message"
