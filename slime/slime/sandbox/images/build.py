"""Images from a Dockerfile: built once for its folder's content, and unpacked."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Sequence
from pathlib import Path

from slime.errors import ConfigError, DataError
from slime.sandbox.images.cache import cached_image, image_of, images_folder
from slime.sandbox.images.image import Image
from slime.sandbox.images.tools import INSTALL, Tool, tools


def built_image(dockerfile: Path, chosen: Sequence[Tool] | None = None, folder: Path | None = None) -> Image:
    """Returns the image of a Dockerfile, whose folder is the context. One process builds it while others wait,
    and it is rebuilt only if the folder changes. podman or docker keep only their own cache of steps.

    Args:
        chosen: tools to use; None: the installed ones.
        folder: folder of the cache; None: `images_folder()`.

    Raises:
        ConfigError: neither podman nor docker is installed, or the disk is full.
        DataError: a step of the Dockerfile fails.
    """
    folder = images_folder() if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    name = f"localhost/slime-built:{_digest(dockerfile)}"
    with (folder / f"{name.rpartition(':')[2]}.build").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cached = cached_image(folder, name)
        return cached or _built(dockerfile, name, folder, tools() if chosen is None else list(chosen))


def _built(dockerfile: Path, name: str, folder: Path, here: list[Tool]) -> Image:
    reasons = []
    for tool in here:
        try:
            tool.build(dockerfile.parent, dockerfile, name)
        except DataError as error:
            reasons.append(str(error))
            continue
        try:
            return image_of(name, folder, [tool])
        finally:
            tool.ask("rmi", name)
    if not reasons:
        raise ConfigError(f"{dockerfile} needs podman or docker: {INSTALL}")
    raise DataError("; ".join(reasons))


def _digest(dockerfile: Path) -> str:
    """Returns the digest of names, permissions and contents of all files in the Dockerfile's folder, and of the
    Dockerfile's name."""
    hasher = hashlib.sha256(dockerfile.name.encode())
    for path in sorted(dockerfile.parent.rglob("*")):
        about = path.lstat()
        hasher.update(f"\0{path.relative_to(dockerfile.parent)}\0{about.st_mode:o}\0".encode())
        if path.is_symlink():
            hasher.update(str(path.readlink()).encode())
        elif path.is_file():
            hasher.update(hashlib.sha256(path.read_bytes()).digest())
    return hasher.hexdigest()[:32]
