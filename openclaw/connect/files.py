"""Reads and writes openclaw.json without ever losing a setting."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from openclaw.errors import ConfigError


class NotPlainJson(ConfigError):
    """The file has comments or other marks that OpenClaw reads and that writing it back would lose."""


def read_config(file: Path) -> dict[str, Any]:
    """The content; {} when there is no file yet.

    Raises:
        NotPlainJson: not JSON. ConfigError: it cannot be read or holds no object.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise NotPlainJson(
            f"{file} is not plain JSON (line {error.lineno}, column {error.colno}: {error.msg}); writing it would lose "
            "its comments, so it was left alone"
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file} holds no object at its top; mend it first")
    return content


def write_config(file: Path, content: dict[str, Any], keep_old: bool = True) -> Path | None:
    """Replaces the file at once, with its permissions; returns the backup of what was there, if one is kept.

    Raises ConfigError when it cannot be written; the old file is then still there.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        backup = _backup(file) if keep_old and file.exists() else None
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                json.dump(content, out, indent=2, ensure_ascii=False)
                out.write("\n")
            os.chmod(temporary, file.stat().st_mode & 0o777 if file.exists() else 0o600)
            os.replace(temporary, file.resolve())
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error}") from error
    return backup


def restore(file: Path, backup: Path | None) -> None:
    """What was there before `write_config`."""
    if backup is None:
        file.unlink(missing_ok=True)
    else:
        file.write_bytes(backup.read_bytes())


def _backup(file: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        backup = file.with_name(f"{file.name}.before-openclaw-rl-{stamp}{f'-{number}' if number else ''}")
        try:
            with backup.open("xb") as out:
                os.chmod(backup, 0o600)
                out.write(file.read_bytes())
        except FileExistsError:
            continue
        return backup
    raise ConfigError(f"no name is left for a backup of {file}")
