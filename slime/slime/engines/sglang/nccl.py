"""Checks at startup whether trainer and engine can join one NCCL group.

NCCL rejects ranks of different versions ("Mismatched NCCL version detected"), but only at the first bucket of
an update. Versions are read from package metadata, so torch need not be imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from slime.errors import ConfigError

PREFIX = "nvidia-nccl-"
LOCK = Path(__file__).parents[4] / "instructions" / "locks" / "sglang.txt"
"""Lock file with the package versions of SGLang's installation instructions."""
ASK_TIMEOUT = 60.0  # seconds
QUESTION = (
    "import importlib.metadata, json; "
    "names = {(one.metadata['Name'] or '').lower(): one.version for one in importlib.metadata.distributions()}; "
    f"print(json.dumps({{k: v for k, v in names.items() if k == 'torch' or k.startswith({PREFIX!r})}}))"
)


def check_same_nccl(engine_python: str) -> None:
    """Raises ConfigError if the engine's Python has another NCCL version; a Python without NCCL is accepted."""
    problem = mismatch(packages(sys.executable), packages(engine_python), engine_python)
    if problem:
        raise ConfigError(problem)


def nccl_mismatch(engine_python: str | None) -> str:
    """Returns why NCCL cannot connect this trainer and external engines; "" if it can.

    Args:
        engine_python: a Python with these engines' packages; None: the versions of the lock file are assumed.
    """
    theirs = packages(engine_python) if engine_python else locked_packages(LOCK)
    return difference(packages(sys.executable), theirs, engine_python or f"SGLang, by locks/{LOCK.name},")


def locked_packages(lock: Path) -> dict[str, str]:
    """Returns the versions of torch and NCCL in a lock file; {} if there is no such file."""
    lines = lock.read_text(encoding="utf-8").splitlines() if lock.is_file() else []
    pins = (line.split(";")[0].strip().partition("==") for line in lines)
    return {name: version for name, _, version in pins if name == "torch" or name.startswith(PREFIX)}


def packages(python: str) -> dict[str, str]:
    """Returns the versions of torch and NCCL in a Python. Raises ConfigError if it cannot be run."""
    try:
        done = subprocess.run(
            [python, "-c", QUESTION], capture_output=True, text=True, timeout=ASK_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"cannot get the NCCL version of {python}: {error}") from error
    versions: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return versions


def mismatch(trainer: dict[str, str], engine: dict[str, str], where: str) -> str:
    """Returns why these packages are incompatible, with the remedy; "" if compatible or one side has no NCCL."""
    problem = difference(trainer, engine, where)
    if not problem:
        return ""
    return (
        f"{problem}; remove the flag (engines then read weights from disk), or install the same torch "
        "on both sides"
    )


def difference(trainer: dict[str, str], engine: dict[str, str], where: str) -> str:
    """Returns why these packages are incompatible; "" if compatible or one side has no NCCL."""
    ours, theirs = nccl_of(trainer), nccl_of(engine)
    if not ours or not theirs or ours == theirs:
        return ""
    return (
        f"--update-weight-transport nccl: the trainer has NCCL {ours} (torch "
        f"{trainer.get('torch', 'unknown')}), but {where} has {theirs} (torch "
        f"{engine.get('torch', 'unknown')}), and NCCL cannot connect different versions"
    )


def nccl_of(packages: dict[str, str]) -> str:
    return next((version for name, version in packages.items() if name.startswith(PREFIX)), "")
