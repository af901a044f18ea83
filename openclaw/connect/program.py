"""The OpenClaw program on this machine: its version, and its validation of settings."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OLDEST_FOR_PLUGIN = (2026, 9)
"""Older versions, such as 2026.3, have no API for plug-ins that wrap requests to a provider."""
OLDEST_THAT_VALIDATES = (2026, 3)
SECONDS = 60


@dataclass(frozen=True)
class Program:
    """The installed OpenClaw.

    `version`: (year, month, ...), () if unknown; `problem`: why it cannot be run.
    """

    path: str | None
    version: tuple[int, ...] = ()
    problem: str | None = None

    @property
    def can_load_plugin(self) -> bool:
        """Returns whether this version can load the plug-in; True if the version is unknown."""
        return not self.version or self.version[:2] >= OLDEST_FOR_PLUGIN

    @property
    def shown(self) -> str:
        return ".".join(map(str, self.version)) or "of unknown version"


def find_program() -> Program:
    """Returns the OpenClaw program on PATH."""
    path = shutil.which("openclaw")
    if path is None:
        return Program(
            None,
            problem="openclaw is not on PATH; install it with: npm install -g openclaw (requires Node 24)",
        )
    code, text = _run([path, "--version"])
    if code != 0:
        return Program(path, problem=f"{path} cannot be run, so its version and settings were not checked: "
                       f"{_first_lines(text)} (OpenClaw requires a current Node on PATH)")  # fmt: skip
    match = re.search(r"(\d{4})\.(\d+)\.(\d+)", text)
    return Program(path, tuple(map(int, match.groups())) if match else ())


def validation_error(program: Program, config: Path) -> str | None:
    """Returns the error of OpenClaw's validation of a settings file.

    None if the file is valid, or if OpenClaw is not installed or too old to validate.
    """
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
        return 1, f"{' '.join(command)} timed out after {SECONDS} s"
    return done.returncode, done.stdout + done.stderr


def _first_lines(text: str) -> str:
    return " ".join(line.strip() for line in text.strip().splitlines()[:4]) or "it failed without a message"
