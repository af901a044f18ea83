"""The root of a sandbox with an image: its files, read-only, with mount points."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from slime.errors import ConfigError
from slime.sandbox.images.image import Image, parts

MOUNT_POINTS = ("proc", "dev", "tmp", ".box")
"""Folders that every unpacked image has, as mount points."""


def image_mounts(image: Image, places: Iterable[str]) -> list[str]:
    """Returns arguments of bubblewrap. An image that contains all places is one mount. A folder without one of them is
    rebuilt, with a mount for each of its entries.

    Raises:
        ConfigError: the path of a place contains a link of the image, which could point outside.
    """
    return _mounted(image, image.path, "", [parts(place) for place in places])


def _mounted(image: Image, here: Path, at: str, places: list[tuple[str, ...]]) -> list[str]:
    below = [place for place in places if place]
    missing = [place for place in below if not _is_there(image, here, at, place)]
    if not missing:
        return ["--ro-bind", str(here), at or "/"]
    words = ["--dir", at] if at else []
    with os.scandir(here) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            inner = [place[1:] for place in below if place[0] == entry.name]
            there = f"{at}/{entry.name}"
            if entry.is_symlink():
                words += ["--symlink", os.readlink(entry.path), there]
            elif entry.is_dir() and inner:
                words += _mounted(image, Path(entry.path), there, inner)
            else:
                words += ["--ro-bind", entry.path, there]
    return words


def _is_there(image: Image, here: Path, at: str, place: tuple[str, ...]) -> bool:
    for name in place:
        here, at = here / name, f"{at}/{name}"
        try:
            mode = here.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
        if stat.S_ISLNK(mode):
            raise ConfigError(
                f"{at} is a link to {os.readlink(here)} in the image {image.name}, so nothing can be mounted there"
            )
    return True
