"""A folder that outlives the sandboxes that use it, and is removed with the process that created it."""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

from slime.errors import ConfigError, SandboxError
from slime.sandbox.command import BOX_USER, copy_as_box_user
from slime.sandbox.folders import (
    FOLDER,
    TooLarge,
    check_size,
    copy_tree,
    drop_setuid,
    folder,
    new_file,
    parts_of,
    read_file,
    remove,
    size_of,
)
from slime.sandbox.images.image import Image
from slime.sandbox.places import base_folder, new_folder, removed


class Workspace:
    """A private folder that sandboxes read and write, one after the other or concurrently.

    It is removed by `close` or when this process ends. If the process was killed, it is removed when the next
    workspace is created.

    Attributes:
        place: its path in sandboxes.
        path: its path on this machine. Links in it may point anywhere, so use the methods here.
        image: image of its initial folders; None if there was none.
        folders: all its folders on this machine with their paths in sandboxes; `path` and `place` are the first.
    """

    def __init__(
        self,
        template: Path | None = None,
        place: str = "/workspace",
        most_bytes: int = 256 << 20,
        most_entries: int = 20_000,
        image: Image | None = None,
        writable: Sequence[str] = (),
    ) -> None:
        """Creates the workspace, with a copy of the files in `template`, or else of the image's files at `place`.

        Args:
            most_bytes, most_entries: limits of all files that are not from the image; a sandbox that writes more is
                ended.
            writable: further places that sandboxes may write to, with the image's content.

        Raises:
            ConfigError: no place is accessible to the sandbox's user, or the image has a link or file at a place.
            SandboxError: it could not be written, for example on a full disk.
        """
        for one in (place, *writable):
            if not one.startswith("/") or one in (
                "/",
                "/tmp",
                "/proc",
                "/dev",
                *(() if image else ("/usr",)),
            ):
                raise ValueError(f"a workspace cannot be at {one!r} in a sandbox")
        self.place, self.most_bytes, self.most_entries, self.image = place, most_bytes, most_entries, image
        base = base_folder()
        try:
            outer, held = new_folder(base)
            self._end = weakref.finalize(self, removed, base, outer.name, held, os.getpid())
            self.path = outer / "files"
            self.folders = tuple(zip(_folders(outer, 1 + len(writable)), (place, *writable), strict=True))
            self._roots = [os.open(path, FOLDER) for path, _ in self.folders]
            held += self._roots
            if template is not None:
                copy_tree(template, self.root)
            if image is not None:
                self._fill(image, template is None)
        except (OSError, ConfigError) as error:
            if hasattr(self, "_end"):
                self.close()
            if isinstance(error, ConfigError):
                raise
            raise SandboxError(f"a workspace could not be created: {error}") from error

    @property
    def root(self) -> int:
        """Returns a descriptor of the folder. Raises OSError after `close`, because another file may have its number."""
        if not self._end.alive:
            raise OSError(errno.EBADF, "the workspace is closed")
        return self._roots[0]

    def _fill(self, image: Image, first: bool) -> None:
        """Copies the image's folders; they do not count for the limits."""
        for path, place in self.folders if first else self.folders[1:]:
            if (source := image.folder(place)) is not None:
                copy_as_box_user(source, path)
        try:
            size, entries = map(sum, zip(*(size_of(root) for root in self._roots), strict=True))
        except TooLarge as error:
            raise ConfigError(
                f"the files of the image {image.name} do not fit into a workspace: {error}"
            ) from error
        self.most_bytes, self.most_entries = self.most_bytes + size, self.most_entries + entries

    def again(self) -> Workspace:
        """Returns a new workspace with copies of these files. Raises SandboxError."""
        places = [there for _, there in self.folders[1:]]
        new = Workspace(None, self.place, self.most_bytes, self.most_entries, writable=places)
        new.image = self.image
        try:
            for (path, _), root in zip(self.folders, new._roots, strict=True):
                copy_tree(path, root)
        except OSError as error:
            new.close()
            raise SandboxError(f"a workspace could not be copied: {error}") from error
        return new

    def write(self, path: str, data: bytes, executable: bool = False) -> None:
        """Writes or replaces a file. Raises ValueError for a path that leads out, OSError."""
        *way, name = parts_of(path)
        with folder(self.root, tuple(way), make=True) as here:
            with new_file(here, name, 0o755 if executable else 0o644) as file:
                file.write(data)

    def read(self, path: str, longest: int = 1 << 20) -> bytes:
        """Returns the first `longest` bytes of a file. Raises ValueError for a path that leads out; OSError, also for
        a link."""
        *way, name = parts_of(path)
        with folder(self.root, tuple(way)) as here:
            return read_file(here, name, longest)

    def copy_in(self, source: Path, path: str) -> None:
        """Writes a copy of a folder of this machine; it replaces an existing one. Raises ValueError, OSError."""
        *way, name = parts_of(path)
        with folder(self.root, tuple(way), make=True) as here:
            remove(here, name)
            with folder(here, (name,), make=True) as new:
                copy_tree(source, new)

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with its contents, if it exists. Raises ValueError, OSError."""
        *way, name = parts_of(path)
        with contextlib.suppress(FileNotFoundError), folder(self.root, tuple(way)) as here:
            remove(here, name)

    def check_size(self, nameless: int = 0) -> None:
        """Raises TooLarge if there is more in it than it may hold, with `nameless` bytes of files without a name."""
        _ = self.root
        check_size(self._roots, self.most_bytes, self.most_entries, nameless)

    def settle(self) -> None:
        """Removes setuid bits left by a sandbox; does nothing if it is closed."""
        for root in self._roots if self._end.alive else ():
            drop_setuid(root)

    def close(self) -> None:
        """Removes it. May be repeated."""
        self._end()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


def _folders(outer: Path, count: int) -> list[Path]:
    """Creates folders of the sandbox's user: `files`, and further ones next to it."""
    made = [outer / ("files" if number == 0 else f"more-{number}") for number in range(count)]
    for path in made:
        path.mkdir(mode=0o700)
        if os.getuid() == 0:
            os.chown(path, BOX_USER, BOX_USER)
    return made
