"""What of a Dockerfile a box can do without building it: where the work is, and which files are there."""

from __future__ import annotations

import posixpath
import shlex
from pathlib import Path

IGNORED = ("FROM", "LABEL", "MAINTAINER", "CMD", "ENTRYPOINT", "EXPOSE")
"""A box has the system of this machine, whatever the image is, and runs no command of it."""


class NeedsBuild(ValueError):
    """What podman or docker could build, and a box cannot do alone."""


def copies_of(file: Path, usual: str) -> tuple[str, tuple[tuple[Path, str], ...]]:
    """The working folder, and the files that are copied: where from, and where to, relative to the working folder.

    Raises:
        ValueError: a path that is not there, or leads out of the folder. NeedsBuild: the Dockerfile has to be built.
    """
    workdir, copies = usual, []
    for number, words in _instructions(file.read_text()):
        name = words[0].upper()
        if name == "WORKDIR" and len(words) == 2:
            workdir = posixpath.join(workdir, words[1])
        elif name == "COPY" and len(words) == 3 and not words[1].startswith("--"):
            copies.append((number, words[1], posixpath.join(workdir, words[2]), words[2].endswith("/")))
        elif name not in IGNORED:
            raise NeedsBuild(
                f"line {number}: {' '.join(words[:2])} needs podman or docker; without one, boxes take WORKDIR and COPY "
                "of one path (and a setup.sh beside the task's tests for the rest)"
            )
    return workdir, tuple(_copy(file.parent, workdir, *one) for one in copies)


def _copy(context: Path, workdir: str, number: int, source: str, target: str, into: bool) -> tuple[Path, str]:
    found = (context / source.lstrip("/")).resolve()
    if not found.is_relative_to(context.resolve()) or not found.exists():
        raise ValueError(f"line {number}: there is no {source} beside the Dockerfile")
    if into and found.is_file():
        target = posixpath.join(target, found.name)
    place = posixpath.relpath(posixpath.normpath(target), workdir)
    if place == ".." or place.startswith("../"):
        raise NeedsBuild(
            f"line {number}: {target} is outside the working folder {workdir}, which is all that a box keeps"
        )
    return found, place


def _instructions(text: str) -> list[tuple[int, list[str]]]:
    """Words of each instruction with the number of its line; lines that end in a backslash go on."""
    found: list[tuple[int, list[str]]] = []
    held, begun = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not held and (not line.strip() or line.lstrip().startswith("#")):
            continue
        begun = begun if held else number
        held += line.strip().removesuffix("\\") + " "
        if not line.rstrip().endswith("\\"):
            found.append((begun, shlex.split(held, comments=False)))
            held = ""
    return found
