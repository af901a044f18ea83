"""Serves repositories over HTTP to other hosts: `python -m slime.pool --environment swe_rl.served:environment`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

from claw_base.settings.command_line import environment as variables
from claw_base.settings.command_line import from_environment
from claw_base.settings.declare import flags_of
from slime.agents import Environment
from slime.errors import ConfigError, DataError
from swe_rl.generate import SweFlags, maker
from swe_rl.instance import Instance
from swe_rl.repository import PACKAGE

_REFERENCE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.-]*(:\d+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
"""A reference by the grammar of registries. `oci:/a/folder` or `tarball:/a/file` would name local files."""
_TRANSPORT = re.compile(r"(docker|oci|[a-z]+-(daemon|archive|storage)|dir|sif|ostree|tarball|atomic|stub):")


def folder_of(named: str | None) -> Path | None:
    """Raises ConfigError if the folder does not exist."""
    if named is None:
        return None
    if not Path(named).is_dir():
        raise ConfigError(f"SWE_TASKS_DIR {named} is not a folder")
    return Path(named).resolve()


def check_request(instance: Instance, folder: Path | None) -> None:
    """Raises DataError for an instance with a local path outside `folder`."""
    paths = []
    if instance.image and not _is_published(instance.image):
        paths.append(instance.image)
    package = PACKAGE.fullmatch(instance.repository) and not Path(instance.repository).exists()
    if instance.repository and not instance.image and not package:
        paths.append(instance.repository)
    for path in paths:
        if folder is None or not Path(path).resolve().is_relative_to(folder):
            where = "SWE_TASKS_DIR is not set there" if folder is None else "it is not below SWE_TASKS_DIR"
            raise DataError(f"{instance.instance_id}: {path!r} is not served, as {where}")


def _is_published(image: str) -> bool:
    """Returns whether podman or docker would look up the image in a registry, and it is not a local path."""
    return bool(_REFERENCE.fullmatch(image)) and not _TRANSPORT.match(image) and not Path(image).exists()


@functools.cache
def _make() -> Callable[[], Environment]:
    flags = SweFlags(**from_environment(flags_of(SweFlags), variables()))
    return maker(flags, functools.partial(check_request, folder=folder_of(flags.tasks_dir)))


def environment() -> Environment:
    """Returns an environment, configured by this host's environment variables of the track. Raises ConfigError."""
    return _make()()
