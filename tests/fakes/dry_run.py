"""Runs a launch script's dry run without starting Python: bash runs the script, and this process acts as the
planner."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from slime.plan import dry_run
from tests import ROOT

RECORDER = """#!/bin/sh
case "$3 {own_ports}" in "claw_base.run_folder.start_check True" | "slime.plan.master True") exec "{python}" "$@" ;; esac
[ "$1" = -c ] && exit 0
case $2 in
  slime.plan.division | slime.plan.shape | slime.plan.driver | slime.plan.model_folder) exec "{python}" "$@" ;;
esac
printf '%s\\0' "$@" > "{folder}/words"
env -0 > "{folder}/environment"
"""
"""Replaces Python and records its arguments. Questions about model parallelism, context length, files and the driver
are answered by the real Python. Every port is reported as free, unless this machine's ports are requested."""

Done = subprocess.CompletedProcess[str]


def bash(*words: str, cwd: Path = ROOT, **env: str) -> Done:
    """Runs bash with an empty environment except PATH and this process's Python."""
    environ = {"PATH": os.environ["PATH"], "VENV": sys.prefix, "HOME": "/nonexistent", **env}
    return subprocess.run(["bash", *words], cwd=cwd, env=environ, capture_output=True, text=True, timeout=120)


def dry(script: str, *flags: str, cwd: Path = ROOT, own_ports: bool = False, **env: str) -> Done:
    """Returns the output of the script with DRY_RUN=full, and its exit status. `VENV` is that of this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _recorder(folder, own_ports)
        done = bash(script, *flags, cwd=cwd, **{"DRY_RUN": "full", **env, "VENV": name})
        if not (folder / "words").exists():  # rejected before
            return done
        words, variables = _recorded(folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = dry_run.main(words, variables)
    return Done(
        done.args, status or done.returncode, out.getvalue() + done.stdout, err.getvalue() + done.stderr
    )


def words_of(script: str, *flags: str, **env: str) -> tuple[list[str], dict[str, str]]:
    """Returns the arguments of the script's planner call, and the variables at that time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _recorder(folder)
        done = bash(script, *flags, **{"DRY_RUN": "full", **env, "VENV": name})
        assert (folder / "words").exists(), done.stderr
        return _recorded(folder)


def _recorder(folder: Path, own_ports: bool = False) -> None:
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(RECORDER.format(folder=folder, python=sys.executable, own_ports=own_ports))
    python.chmod(0o755)


def _recorded(folder: Path) -> tuple[list[str], dict[str, str]]:
    option, module, *words = _strings(folder / "words")
    assert (option, module) == ("-m", "slime.plan.dry_run")
    return words, dict(one.split("=", 1) for one in _strings(folder / "environment"))


def _strings(file: Path) -> list[str]:
    return file.read_text().split("\0")[:-1]
