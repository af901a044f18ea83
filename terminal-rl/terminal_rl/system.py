"""Settings of all sandboxes for terminals."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from slime.errors import ConfigError, EnvironmentAway
from slime.sandbox import Image, Limits, Workspace, run

LIMITS = Limits(processes=64, cpu_seconds=600, file_bytes=64 << 20)
WORKSPACE_BYTES = 256 << 20
SLOW_SECONDS, IDLE_SECONDS = (
    1.0,
    60.0,
)  # an empty sandbox takes 0.05 s, and 0.12 s at a load of 20 on two cores
_ALTERNATIVES = Path("/etc/alternatives")
READ_ONLY = {_ALTERNATIVES: str(_ALTERNATIVES)} if _ALTERNATIVES.is_dir() else {}
"""Further folders of this machine in sandboxes: awk and similar programs are links into this folder."""
WRITABLE = ("/root", "/home", "/srv", "/data", "/opt", "/var/www", "/var/log")
"""Writable folders of an image besides the working folder, if they exist and are small."""
MOST_COPIED = 64 << 20


def read_only_of(workspace: Workspace) -> Mapping[Path, str]:
    """Returns the paths of this machine that sandboxes on the workspace see in addition to their system."""
    return READ_ONLY if workspace.image is None else {}


def check_speed() -> None:
    """Raises EnvironmentAway if an empty sandbox starts so slowly here that time limits would not measure the
    agent."""
    began = time.monotonic()
    run("true", IDLE_SECONDS, limits=LIMITS)
    if (took := time.monotonic() - began) > SLOW_SECONDS:
        raise EnvironmentAway(
            f"the time for tools is over, but a sandbox that does nothing took {took:.1f} s: the machine is slow"
        )


def writable_of(image: Image, workdir: str) -> tuple[str, ...]:
    """Returns the folders of an image that are copied to a workspace. None contains another, and none is a link."""
    folders = []
    for place in WRITABLE:
        nested = f"{workdir}/".startswith(f"{place}/") or f"{place}/".startswith(f"{workdir}/")
        with contextlib.suppress(ConfigError):
            folder = image.folder(place)
            if folder is not None and not nested and size_of(folder) <= MOST_COPIED:
                folders.append(place)
    return tuple(folders)


def size_of(folder: Path) -> int:
    """Returns the bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*"))
