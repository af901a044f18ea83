"""A folder that outlives the boxes that work in it, and goes with the process that made it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

from slime.agents.sandbox.command import BOX_USER
from slime.agents.sandbox.folders import (
    FOLDER,
    check_size,
    copy_tree,
    drop_setuid,
    folder,
    new_file,
    parts_of,
    read_file,
    remove,
)
from slime.errors import ConfigError, SandboxError

_swept: set[Path] = set()
_lock = threading.Lock()


class Workspace:
    """A private folder, read and written by the boxes it is given to, one after the other or at a time.

    It is removed by `close`, when this process ends, and, where this process was killed, when the next one makes a
    workspace.

    Attributes:
        place: where boxes see it.
        path: where it is on this machine. Links in it may lead anywhere: use the methods here.
    """

    def __init__(
        self,
        template: Path | None = None,
        place: str = "/workspace",
        most_bytes: int = 256 << 20,
        most_entries: int = 20_000,
    ) -> None:
        """Makes it, with a copy of what is in `template`.

        Args:
            most_bytes, most_entries: of all files; a box that writes more is ended.

        Raises:
            ConfigError: there is no place for it that the box's user can reach.
            SandboxError: it could not be written, as on a full disk.
        """
        if not place.startswith("/") or place in ("/", "/tmp", "/usr", "/proc", "/dev"):
            raise ValueError(f"a workspace cannot be at {place!r} in a box")
        self.place, self.most_bytes, self.most_entries = place, most_bytes, most_entries
        base = base_folder()
        try:
            outer, held = _new_folder(base)
            self._end = weakref.finalize(self, _removed, base, outer.name, held, os.getpid())
            self.path = outer / "files"
            self.path.mkdir(mode=0o700)
            if os.getuid() == 0:
                os.chown(self.path, BOX_USER, BOX_USER)
            self._root = os.open(self.path, FOLDER)
            held.append(self._root)
            if template is not None:
                copy_tree(template, self.root)
        except OSError as error:
            if hasattr(self, "_end"):
                self.close()
            raise SandboxError(f"a workspace could not be made: {error}") from error

    @property
    def root(self) -> int:
        """A descriptor of the folder. Raises OSError once it is closed, for its number may be another's then."""
        if not self._end.alive:
            raise OSError(errno.EBADF, "the workspace is closed")
        return self._root

    def write(self, path: str, data: bytes, executable: bool = False) -> None:
        """Writes a file, in place of what was there. Raises ValueError for a path that leads out, OSError."""
        *way, name = parts_of(path)
        with folder(self.root, tuple(way), make=True) as here:
            with new_file(here, name, 0o755 if executable else 0o644) as file:
                file.write(data)

    def read(self, path: str, longest: int = 1 << 20) -> bytes:
        """The first `longest` bytes of a file. Raises ValueError for a path that leads out; OSError, also for a link."""
        *way, name = parts_of(path)
        with folder(self.root, tuple(way)) as here:
            return read_file(here, name, longest)

    def copy_in(self, source: Path, path: str) -> None:
        """A copy of a folder of this machine, in place of what was there. Raises ValueError, OSError."""
        *way, name = parts_of(path)
        with folder(self.root, tuple(way), make=True) as here:
            remove(here, name)
            with folder(here, (name,), make=True) as new:
                copy_tree(source, new)

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with all in it; nothing where there is none. Raises ValueError, OSError."""
        *way, name = parts_of(path)
        with contextlib.suppress(FileNotFoundError), folder(self.root, tuple(way)) as here:
            remove(here, name)

    def check_size(self) -> None:
        """Raises TooLarge where there is more in it than it may hold."""
        check_size(self.root, self.most_bytes, self.most_entries)

    def settle(self) -> None:
        """Takes setuid bits from what a box left; nothing where it is closed."""
        if self._end.alive:
            drop_setuid(self.root)

    def close(self) -> None:
        """Removes it. May be repeated."""
        self._end()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


def base_folder() -> Path:
    """Where workspaces of this user are. At the first call in a process, those whose process was killed are removed.

    Raises:
        ConfigError: the folder belongs to somebody else, or the box's user cannot reach it.
    """
    base = Path(tempfile.gettempdir()).resolve() / f"slime-workspaces-{os.getuid()}"
    with _lock:
        with contextlib.suppress(FileExistsError):
            base.mkdir(mode=0o711)
        about = base.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            raise ConfigError(f"{base} belongs to somebody else; set TMPDIR to a folder of your own")
        base.chmod(0o711)
        closed = [parent for parent in base.parents if os.getuid() == 0 and not parent.stat().st_mode & 0o001]
        if closed:
            raise ConfigError(f"workspaces in {base} cannot be reached by other users: set TMPDIR")
        if base not in _swept:
            sweep(base)
            _swept.add(base)
    return base


def sweep(base: Path) -> None:
    """Removes workspaces below `base` whose process has ended."""
    with _held(base, fcntl.LOCK_EX) as root:
        for name in os.listdir(base):
            with contextlib.suppress(OSError):
                held = os.open(name, FOLDER, dir_fd=root)
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(root, name)
                finally:
                    os.close(held)


def _new_folder(base: Path) -> tuple[Path, list[int]]:
    """A folder of this process's, and the descriptors that say so."""
    with _held(base, fcntl.LOCK_SH):
        outer = base / secrets.token_hex(8)
        outer.mkdir(mode=0o711)
        outer.chmod(0o711)
        held = os.open(outer, FOLDER)
        fcntl.flock(held, fcntl.LOCK_EX)
        return outer, [held]


@contextlib.contextmanager
def _held(base: Path, how: int) -> Iterator[int]:
    root = os.open(base, FOLDER)
    try:
        fcntl.flock(root, how)
        yield root
    finally:
        os.close(root)


def _removed(base: Path, name: str, held: list[int], pid: int) -> None:
    if os.getpid() != pid:  # a fork of the process that made it
        return
    root = os.open(base, FOLDER)
    try:
        remove(root, name)
    finally:
        for descriptor in (root, *held):
            os.close(descriptor)
