"""Reads and writes settings files of clients: atomically, and with a backup."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from openclaw.errors import ConfigError


class NotPlainJson(ConfigError):
    """The file has comments or other syntax that is lost when it is rewritten as JSON."""


def read_config(file: Path) -> dict[str, Any]:
    """Returns the content; {} if the file does not exist.

    Raises:
        NotPlainJson: the file is not JSON.
        ConfigError: the file cannot be read, or its content is not an object.
    """
    text = read_text(file)
    if text is None:
        return {}
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise NotPlainJson(
            f"{file} is not plain JSON (line {error.lineno}, column {error.colno}: {error.msg}); rewriting it would "
            "lose its comments, so it was not changed"
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: the top-level value is not an object; correct it first")
    return content


def read_text(file: Path) -> str | None:
    """Returns the text; None if the file does not exist. Raises ConfigError if it cannot be read."""
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def write_config(file: Path, content: dict[str, Any], keep_old: bool = True) -> Path | None:
    """Writes content as JSON, see `write_text`."""
    return write_text(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n", keep_old)


def write_text(file: Path, text: str, keep_old: bool = True) -> Path | None:
    """Replaces the file atomically, and keeps its permissions and owner. Returns the backup, if one was made.

    A symbolic link is kept: its target is replaced, and the backup is next to the link.

    Raises:
        ConfigError: the file cannot be written or is read-only; it is then unchanged.
    """
    try:
        target = file.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        known = target.stat() if target.exists() else None
        if known is not None and not known.st_mode & 0o200:
            raise ConfigError(
                f"{file} is read-only, so it was not changed; to allow changes, run: chmod u+w {target}"
            )
        backup = _backup(file) if keep_old and known is not None else None
        _replace(target, text, known)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error}") from error
    return backup


def readable_by_others(file: Path) -> bool:
    """Returns whether other users of this machine can read the file."""
    return bool(file.stat().st_mode & 0o044)


def _replace(target: Path, text: str, known: os.stat_result | None) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(text.encode())
        if known is not None:
            os.chmod(temporary, known.st_mode & 0o777)
            if known.st_uid != os.geteuid():
                os.chown(temporary, known.st_uid, known.st_gid)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def restore(file: Path, backup: Path | None) -> None:
    """Restores the file from its backup; without one, deletes it."""
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
    raise ConfigError(f"cannot back up {file}: all names for backups of this second are in use")
