"""Unpacks the files of an image, as a tar or as layers of them, into a folder.

The content of an image is not trusted: links are not followed, no path may leave the folder, devices and pipes are
omitted, and setuid bits are removed. Files belong to this process's user, and every user may read them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO

from slime.sandbox.folders import FOLDER, new_file, remove
from slime.sandbox.images.mounts import MOUNT_POINTS

HIDDEN, OPAQUE = ".wh.", ".wh..wh..opq"
"""Names in a layer that remove an entry of lower layers, and all entries of a folder (OCI image specification)."""


class BadImage(Exception):
    """An archive that is not an image, or is broken; the message is one line."""


class Unpacker:
    """Writes the entries of archives below an open folder."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._at: tuple[tuple[str, ...], int] | None = None

    def add(self, stream: IO[bytes], layer: bool = False) -> None:
        """Unpacks one tar, compressed or not, over the existing files.

        Args:
            layer: special names remove entries of lower layers.

        Raises:
            BadImage: the tar cannot be read, or a path leaves the folder.
            OSError: a file cannot be written.
        """
        try:
            with tarfile.open(fileobj=stream, mode="r|*") as archive, contextlib.closing(self):
                new: set[tuple[str, ...]] = set()
                for entry in archive:
                    self._entry(archive, entry, layer, new)
        except (tarfile.TarError, EOFError, ValueError, OverflowError, zlib.error) as error:
            raise BadImage(f"its archive cannot be read: {line_of(error)}") from error

    def close(self) -> None:
        """Closes the folder that was written to last."""
        if self._at is not None:
            os.close(self._at[1])
            self._at = None

    def _entry(
        self, archive: tarfile.TarFile, entry: tarfile.TarInfo, layer: bool, new: set[tuple[str, ...]]
    ) -> None:
        path = _inside(entry.name)
        if not path:
            return
        *way, name = path
        here = self._folder(tuple(way))
        if layer and name.startswith(HIDDEN):
            self._hide(here, tuple(way), name, new)
            return
        new.add(path)
        if entry.isdir():
            if not _is_folder(here, name):
                remove(here, name)
                _make(here, name)
        elif entry.isreg():
            self._file(archive, entry, here, name)
        elif entry.issym():
            remove(here, name)
            os.symlink(entry.linkname, name, dir_fd=here)
        elif entry.islnk():
            self._link(_inside(entry.linkname), here, name)

    def _file(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, here: int, name: str) -> None:
        source = archive.extractfile(entry)
        assert source is not None
        mode = 0o755 if entry.mode & 0o111 else 0o644
        with new_file(here, name, mode) as file:
            shutil.copyfileobj(source, file, 1 << 20)
        os.utime(name, (entry.mtime, entry.mtime), dir_fd=here, follow_symlinks=False)

    def _link(self, target: tuple[str, ...], here: int, name: str) -> None:
        *way, old = target or ("",)
        with _opened(self.root, tuple(way)) as there:
            try:
                os.link(old, f"{name}.new", src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)
            except (FileNotFoundError, PermissionError) as error:
                raise BadImage(
                    f"a hard link to {'/'.join(target)}, which is not a file of the image"
                ) from error
            remove(here, name)
            os.rename(f"{name}.new", name, src_dir_fd=here, dst_dir_fd=here)

    def _hide(self, here: int, way: tuple[str, ...], name: str, new: set[tuple[str, ...]]) -> None:
        """Removes entries of lower layers, but not entries of this layer."""
        self.close()
        with _opened(self.root, way) as folder:
            hidden = os.listdir(folder) if name == OPAQUE else [name.removeprefix(HIDDEN)]
            for one in hidden:
                if one not in ("", ".", "..") and (*way, one) not in new:
                    remove(folder, one)

    def _folder(self, way: tuple[str, ...]) -> int:
        """Returns the folder, created if it is missing. It stays open until the next call, because entries are sorted by
        folder."""
        if self._at is None or self._at[0] != way:
            self.close()
            with _opened(self.root, way, make=True) as here:
                self._at = way, os.dup(here)
        return self._at[1]


def _inside(name: str) -> tuple[str, ...]:
    """Returns the components of a path. Raises BadImage if it leads outside."""
    path = PurePosixPath(name.lstrip("/")).parts
    if ".." in path or "\0" in name:
        raise BadImage(f"{name!r} is outside the image")
    return tuple(path)


@contextlib.contextmanager
def _opened(root: int, way: tuple[str, ...], make: bool = False) -> Iterator[int]:
    """Opens a folder below the root. Raises BadImage if it is missing, or its path contains a link or a file."""
    here = os.dup(root)
    try:
        for name in way:
            if make:
                with contextlib.suppress(FileExistsError):
                    _make(here, name)
            try:
                below = os.open(name, FOLDER, dir_fd=here)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise BadImage(f"/{'/'.join(way)} is reached through a link or a file") from error
                raise
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def line_of(error: Exception) -> str:
    """Returns the first line of the error."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _make(here: int, name: str) -> None:
    os.mkdir(name, dir_fd=here)
    os.chmod(name, 0o755, dir_fd=here)


def _is_folder(here: int, name: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISDIR(os.lstat(name, dir_fd=here).st_mode)
    return False


def finish(root: int) -> tuple[int, int]:
    """Creates the mount points of a sandbox, replacing entries of these names. Returns bytes and entries of the image."""
    for name in MOUNT_POINTS:
        remove(root, name)
        _make(root, name)
    size, entries = 0, 0
    for _, folders, files, here in os.fwalk(dir_fd=root):
        entries += len(folders) + len(files)
        size += sum(os.lstat(name, dir_fd=here).st_blocks * 512 for name in (*folders, *files))
    return size, entries
