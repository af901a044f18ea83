"""An image for sandboxes: a folder of files that is no longer written to, and its metadata."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slime.errors import ConfigError


@dataclass(frozen=True)
class Image:
    """The files of an image, unpacked.

    Attributes:
        name: the requested name.
        path: folder of the files on this machine. Links in it may point anywhere; only sandboxes follow them.
        environment: variables in its configuration.
        workdir: working folder in its configuration.
        size: bytes of the files.
        entries: number of files and folders.
    """

    name: str
    path: Path
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    workdir: str = "/"
    size: int = 0
    entries: int = 0

    def folder(self, place: str) -> Path | None:
        """Returns a folder of the image on this machine, without following links; None if it does not exist.

        Raises:
            ConfigError: it is not a folder, or its path contains a link.
        """
        here = self.path
        for name in parts(place):
            here = here / name
            try:
                mode = here.lstat().st_mode
            except FileNotFoundError:
                return None
            if not stat.S_ISDIR(mode):
                what = f"a link to {os.readlink(here)}" if stat.S_ISLNK(mode) else "a file"
                raise ConfigError(
                    f"{place} cannot be a separate folder: in the image {self.name} it is {what}"
                )
        return here

    def has(self, *places: str) -> str | None:
        """Returns the path in a sandbox of the first of these programs that exists; None if none does."""
        return next((place for place in places if self._program(place)), None)

    def _program(self, place: str) -> bool:
        """Returns whether a program exists, following links inside the image."""
        left, at, steps = _names(place), self.path, 0
        while left:
            name = left.pop(0)
            at = at.parent if name == ".." and at != self.path else at if name == ".." else at / name
            try:
                mode = at.lstat().st_mode
            except OSError:
                return False
            if stat.S_ISLNK(mode):
                steps += 1
                target = os.readlink(at)
                at = self.path if target.startswith("/") else at.parent
                left = [*_names(target), *left]
                if steps > 40:
                    return False
        return at.is_file() and os.access(at, os.X_OK)


def parts(place: str) -> tuple[str, ...]:
    """Returns the path components of a place in a sandbox. Raises ConfigError if it contains `..`."""
    names = tuple(_names(place))
    if ".." in names:
        raise ConfigError(f"{place} is not a valid path in a sandbox: it contains ..")
    return names


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]
