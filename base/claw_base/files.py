"""Atomic writes of files and folders, checks of their owners and names, and JSON objects in files."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

from claw_base.errors import ConfigError


def write_text(path: Path, text: str) -> None:
    """Replaces a file atomically: a reader sees the old text or the new."""
    temporary = temporary_path(path)
    with open(new_file(temporary, 0o666), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path: Path, content: object) -> None:
    """Replaces a small JSON file atomically: a reader sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(content, indent=1))


def read_object(path: Path) -> dict[str, Any] | None:
    """Returns the JSON object in a file; None if there is no such file, or it holds something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Replaces a file atomically, without fsync. `mode`: its permissions, limited by the umask."""
    temporary = temporary_path(path)
    with open(new_file(temporary, mode), "wb") as file:
        file.write(data)
    temporary.replace(path)


def new_file(path: Path, mode: int = 0o600) -> int:
    """Returns a descriptor for writing a newly created file. An existing entry of that name is removed first, so that
    the data never goes through a link or into a file that another user has open. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), mode)


def append_to(path: Path) -> int:
    """Returns a descriptor for appending to a file; a missing file is created with access for its owner only. Raises
    OSError, also for a link or file of another user."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP or path.lstat().st_uid != os.getuid():
            raise
        return os.open(path, flags, 0o600)
    if os.fstat(descriptor).st_uid not in (os.getuid(), path.parent.stat().st_uid):
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "belongs to another user", str(path))
    return descriptor


def temporary_path(path: Path) -> Path:
    """Returns a hidden path in the same folder, for building the file or folder that is then moved to `path`."""
    return path.with_name(f".{path.name}.tmp")


def is_file_name(name: str) -> bool:
    """Returns whether a name can be joined to a folder without leading outside it."""
    return name not in ("", "..") and Path(name).name == name


def fresh_folder(path: Path) -> Path:
    """Returns an empty folder for building `path`; remains of a killed writer are removed."""
    temporary = temporary_path(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    return temporary


def private_folder(path: Path) -> Path:
    """Returns a folder with access for this user only, below a folder that all users share. Raises ConfigError if
    another user has created something there, such as a link, to read or replace its files."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise ConfigError(
            f"{path} belongs to another user, or is not a folder: remove it, or ask its owner to"
        )
    path.chmod(0o700)
    return path


def check_writable(path: Path) -> None:
    """Raises ConfigError if the folder cannot be created or written. Folders that it creates for the check are
    removed."""
    new = [one for one in (path, *path.parents) if not one.exists() and not one.is_symlink()]
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be created or written ({error.strerror}): give a folder that this user can write to"
        ) from error
    finally:
        for folder in new:
            with contextlib.suppress(OSError):
                folder.rmdir()


def own_run_folder(path: Path, variable: str = "RUN_DIR") -> Path:
    """Returns a run folder, created if it is missing. Raises ConfigError if it, its folders of logs and processes, or
    a file or link in them belongs to a user other than this one or root, who could redirect or read logs.

    This user's id is read from a newly created file: some file systems report one owner for all files.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as probe:
            own_user = os.fstat(probe.fileno()).st_uid
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    for folder in (path, *(path / name for name in ("logs", "processes"))):
        with contextlib.suppress(FileNotFoundError):
            trusted = (own_user, 0)
            foreign = [folder] if folder.stat().st_uid not in trusted else _entries_of_others(folder, trusted)
            if foreign:
                raise ConfigError(
                    f"{foreign[0]} belongs to another user, who could change what is written there: choose another "
                    f"{variable}, or change its owner (chown)"
                )
    return path


def _entries_of_others(folder: Path, trusted: tuple[int, ...]) -> list[Path]:
    """Returns a folder's files and links of other users. Subfolders are not entered: they may be volumes."""
    others = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # a process of the run has just removed it
            if (
                not entry.is_dir(follow_symlinks=False)
                and entry.stat(follow_symlinks=False).st_uid not in trusted
            ):
                others.append(Path(entry.path))
    return others


def commit_folder(temporary: Path, path: Path) -> None:
    """Moves a finished folder to `path`. An existing folder there is replaced."""
    old = _replaced(path)
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)
        path.replace(old)
    temporary.replace(path)
    shutil.rmtree(old, ignore_errors=True)


def recover_folder(path: Path) -> None:
    """Restores the folder that `commit_folder` had moved away when it was killed between its two renames."""
    if not path.exists():
        with contextlib.suppress(FileNotFoundError):
            _replaced(path).replace(path)


def _replaced(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")
