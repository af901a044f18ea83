"""Operations on folders that a model's code may write to: links are never followed, and special files are skipped.

A folder is an open descriptor, and each path component is opened with O_NOFOLLOW, so concurrent changes by a sandbox
cannot redirect an operation.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_DEPTH = 64
"""Maximum depth of nested folders. Deeper trees count as too large."""


class TooLarge(Exception):
    """A tree has too many bytes, entries or levels, or an unreadable part."""


def parts_of(path: str) -> tuple[str, ...]:
    """Returns the path components of a file inside a folder. Raises ValueError: the path leads out of it."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError(f"{path!r} is not a path inside the workspace")
    return parts


@contextlib.contextmanager
def folder(root: int, parts: tuple[str, ...], make: bool = False) -> Iterator[int]:
    """Opens the folder `parts` below `root`. Raises OSError: it is missing, not a folder, or a link is on the way."""
    here = os.dup(root)
    try:
        for name in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=here)
                    own(here, name)
            below = os.open(name, FOLDER, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def own(here: int, name: str) -> None:
    """Gives a new entry to the owner of its folder: the sandbox's user, if this process is root."""
    status = os.fstat(here)
    if os.getuid() == 0 and status.st_uid != 0:
        os.chown(name, status.st_uid, status.st_gid, dir_fd=here, follow_symlinks=False)


@contextlib.contextmanager
def new_file(here: int, name: str, mode: int) -> Iterator[BinaryIO]:
    """Creates a new file of this name for writing; removes an earlier entry."""
    remove(here, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, mode & 0o777, dir_fd=here), "wb") as file:
        yield file
        os.fchmod(file.fileno(), mode & 0o777)
    own(here, name)


def read_file(here: int, name: str, longest: int) -> bytes:
    """Returns the first `longest` bytes. Raises OSError, also unless it is a regular file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=here), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{name} is not a regular file")
        return file.read(longest)


def copy_tree(source: Path, here: int) -> None:
    """Copies the contents of a local folder: files, folders and links as links; without setuid bits and devices."""
    for entry in os.scandir(source):
        status = entry.stat(follow_symlinks=False)
        if entry.is_symlink():
            remove(here, entry.name)
            os.symlink(os.readlink(entry.path), entry.name, dir_fd=here)
            own(here, entry.name)
        elif entry.is_dir():
            with folder(here, (entry.name,), make=True) as below:
                copy_tree(Path(entry.path), below)
                os.fchmod(below, status.st_mode & 0o777)
        elif entry.is_file():
            with open(entry.path, "rb") as old, new_file(here, entry.name, status.st_mode) as new:
                shutil.copyfileobj(old, new)


def remove(here: int, name: str) -> None:
    """Removes an entry with everything below it, regardless of permissions and depth; does nothing if it is
    missing."""
    try:
        status = os.lstat(name, dir_fd=here)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=here)
        return
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(name, dir_fd=here)
        return
    for command in (["chmod", "-R", "u+rwx", "--", name], ["rm", "-rf", "--one-file-system", "--", name]):
        subprocess.run(
            command, cwd=f"/proc/self/fd/{here}", pass_fds=(here,), stderr=subprocess.DEVNULL, check=False
        )
    with contextlib.suppress(FileNotFoundError):
        os.lstat(name, dir_fd=here)
        raise OSError(f"{name} could not be removed")


def walk(here: int, depth: int = 0, partly: bool = False) -> Iterator[tuple[int, os.DirEntry[str]]]:
    """Yields every entry of a tree with the descriptor of its folder. Entries that disappear meanwhile are skipped.

    Args:
        partly: skip entries that would raise TooLarge.

    Raises:
        TooLarge: it is deeper than MAX_DEPTH, or a folder cannot be read.
    """
    if depth > MAX_DEPTH:
        if partly:
            return
        raise TooLarge(f"folders are more than {MAX_DEPTH} deep")
    with os.scandir(here) as entries:
        for entry in entries:
            yield here, entry
            if not entry.is_dir(follow_symlinks=False):
                continue
            try:
                below = os.open(entry.name, FOLDER, dir_fd=here)
            except PermissionError as error:
                if partly:
                    continue
                raise TooLarge(f"the folder {entry.name} cannot be read") from error
            except OSError:
                continue
            try:
                yield from walk(below, depth + 1, partly)
            finally:
                os.close(below)


def check_size(roots: Sequence[int], most_bytes: int, most_entries: int, nameless: int = 0) -> None:
    """Raises TooLarge if the trees together, with `nameless` further bytes, exceed the limits."""
    size = nameless
    if size > most_bytes:
        raise TooLarge(f"files take more than {most_bytes >> 20} MiB")
    for count, (_, entry) in enumerate((entry_of_tree for root in roots for entry_of_tree in walk(root)), 1):
        with contextlib.suppress(FileNotFoundError):
            size += entry.stat(follow_symlinks=False).st_blocks * 512
        if size > most_bytes:
            raise TooLarge(f"files take more than {most_bytes >> 20} MiB")
        if count > most_entries:
            raise TooLarge(f"there are more than {most_entries} files")


def size_of(root: int) -> tuple[int, int]:
    """Returns bytes and entries of a tree that no sandbox has used yet. Raises TooLarge if it is deeper than
    a workspace may be."""
    sizes = [entry.stat(follow_symlinks=False).st_blocks * 512 for _, entry in walk(root)]
    return sum(sizes), len(sizes)


def drop_setuid(root: int) -> None:
    """Removes the setuid and setgid bits of every file in the tree, down to a depth of MAX_DEPTH."""
    for here, entry in walk(root, partly=True):
        with contextlib.suppress(FileNotFoundError):
            if entry.is_symlink() or not entry.stat(follow_symlinks=False).st_mode & 0o6000:
                continue
            fixed = os.open(entry.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            try:
                mode = os.fstat(fixed).st_mode
                if not stat.S_ISLNK(mode):
                    os.chmod(f"/proc/self/fd/{fixed}", mode & 0o1777)
            finally:
                os.close(fixed)
