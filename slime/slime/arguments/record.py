"""`RUN_DIR/arguments.json`: the final value of every flag of a run, from any source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claw_base.files import write_text
from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.flags import Arguments

FILE = "arguments.json"
SECRET = ("api_key", "wandb_key", "password")


def write_arguments(run_dir: Path, args: Arguments) -> None:
    """Writes the arguments of a starting driver, without keys of services."""
    values = {name: value for name, value in vars(args).items() if not name.endswith(SECRET)}
    write_text(run_dir / FILE, json.dumps(values, indent=1, sort_keys=True, default=str) + "\n")


def read_arguments(run_dir: Path) -> dict[str, Any]:
    """Reads the file. Raises ConfigError if it is missing or invalid."""
    path = run_dir / FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must contain a JSON object of flags and values")
    return values
