"""Files and folders that appear whole or not at all, also when the writer is killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from pathlib import Path

from claw_base.errors import ConfigError


def write_text(path: Path, text: str) -> None:
    """Replaces a file in one step; a reader sees the old text or the new."""
    temporary = temporary_beside(path)
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path: Path, content: object) -> None:
    """Replaces a small JSON file in one step: a reader sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(content, indent=1))


def temporary_beside(path: Path) -> Path:
    """Where to build what `commit_folder` or a rename moves to `path`: a hidden name in the same folder."""
    return path.with_name(f".{path.name}.tmp")


def fresh_folder(path: Path) -> Path:
    """An empty folder to build `path` in; what a killed writer left there is removed."""
    temporary = temporary_beside(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    return temporary


def private_folder(path: Path) -> Path:
    """A folder for this user alone, in a place that all users share. Raises ConfigError where another one has put
    something there, a link too, to read or to exchange what is kept in it."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise ConfigError(f"{path} was made by another user, or is no folder: have it removed")
    path.chmod(0o700)
    return path


def commit_folder(temporary: Path, path: Path) -> None:
    """Moves a finished folder to its place. A folder that is there already is replaced."""
    old = _replaced(path)
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)
        path.replace(old)
    temporary.replace(path)
    shutil.rmtree(old, ignore_errors=True)


def recover_folder(path: Path) -> None:
    """Puts back what `commit_folder` had moved aside when it was killed between its two renames."""
    if not path.exists():
        with contextlib.suppress(FileNotFoundError):
            _replaced(path).replace(path)


def _replaced(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")
