"""Locations of workspaces on this machine: in a folder of this user, each locked by its process and removed after
it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from slime.errors import ConfigError
from slime.sandbox.command import BOX_USER
from slime.sandbox.folders import FOLDER, remove

_swept: set[Path] = set()
_lock = threading.Lock()


def base_folder() -> Path:
    """Returns the folder of this user's workspaces. The first call in a process removes those whose process was
    killed.

    Raises:
        ConfigError: the folder belongs to another user, or is not accessible to the sandbox's user.
    """
    base = Path(tempfile.gettempdir()).resolve() / f"slime-workspaces-{os.getuid()}"
    with _lock:
        with contextlib.suppress(FileExistsError):
            base.mkdir(mode=0o711)
        status = base.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise ConfigError(f"{base} belongs to another user; set TMPDIR to another folder")
        base.chmod(0o711)
        inaccessible = [
            parent for parent in base.parents if os.getuid() == 0 and not parent.stat().st_mode & 0o001
        ]
        if inaccessible:
            raise ConfigError(
                f"workspaces in {base} are not accessible to other users: set TMPDIR to another folder"
            )
        if base not in _swept:
            sweep(base)
            _swept.add(base)
    return base


def sweep(base: Path) -> None:
    """Removes workspaces below `base` whose process has exited."""
    with _locked(base, fcntl.LOCK_EX) as root:
        for name in os.listdir(base):
            with contextlib.suppress(OSError):
                held = os.open(name, FOLDER, dir_fd=root)
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(root, name)
                finally:
                    os.close(held)


def new_folder(base: Path) -> tuple[Path, list[int]]:
    """Returns a new folder of this process, and the descriptors whose locks mark it as in use. Only the sandbox's user
    can pass through it, because code in a sandbox may open its own files to everyone."""
    with _locked(base, fcntl.LOCK_SH):
        outer = base / secrets.token_hex(8)
        outer.mkdir(mode=0o700)
        held = os.open(outer, FOLDER)
        if os.getuid() == 0:
            os.fchown(held, 0, BOX_USER)
            os.fchmod(held, 0o710)
        fcntl.flock(held, fcntl.LOCK_EX)
        return outer, [held]


@contextlib.contextmanager
def _locked(base: Path, how: int) -> Iterator[int]:
    root = os.open(base, FOLDER)
    try:
        fcntl.flock(root, how)
        yield root
    finally:
        os.close(root)


def removed(base: Path, name: str, held: list[int], pid: int) -> None:
    if os.getpid() != pid:  # a fork of the process that created it
        return
    root = os.open(base, FOLDER)
    try:
        remove(root, name)
    finally:
        for descriptor in (root, *held):
            os.close(descriptor)
