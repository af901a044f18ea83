"""Reads the sessions of history files and folders, and detects their formats."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from openclaw.errors import StoreError
from openclaw.store.history.atif import is_atif, read_atif
from openclaw.store.history.claude_log import is_claude, read_claude
from openclaw.store.history.hermes_log import is_hermes, read_hermes, read_hermes_database
from openclaw.store.history.openclaw_log import is_openclaw, read_openclaw
from openclaw.store.history.past import Line, PastSession
from openclaw.store.history.shared_logs import is_chatgpt, is_sharegpt, read_chatgpt, read_sharegpt

HOMES = {
    "openclaw": Path(".openclaw") / "agents",
    "hermes": Path(".hermes") / "state.db",
    "claude": Path(".claude") / "projects",
}
"""Histories of programs, relative to the home folder, by the name that may be used instead of a path."""
Reader = Callable[[Line, str], list[PastSession]]
_SUFFIXES = (".jsonl", ".json", ".db")
_SQLITE = b"SQLite format 3\0"
KNOWN = (
    "an exported store, conversations, sessions of OpenClaw, Hermes, Claude Code or ChatGPT, ATIF, ShareGPT"
)


@dataclass
class Histories:
    """The sessions of one or more files, and the number of files by format ("unknown" for other formats)."""

    sessions: list[PastSession] = field(default_factory=list)
    files: Counter[str] = field(default_factory=Counter)


def history_at(name: str) -> Path:
    """Returns an existing path, or for the name of a program (see `HOMES`) the path of its history. Raises
    StoreError."""
    path = Path(name)
    if not path.exists() and name in HOMES:
        path = Path.home() / HOMES[name]
    if not path.exists():
        raise StoreError(
            f"cannot read {path}: no such file or folder; use a path, or openclaw, hermes or claude for the log folder"
            " of that program"
        )
    return path


def read_histories(path: Path) -> Histories:
    """Returns the sessions of a file, or of all history files below a folder.

    Raises:
        StoreError: the file has an unknown format or is broken, or the folder contains no history.
    """
    histories = Histories()
    if path.is_file():
        kind, sessions = _read(path)
        if kind == "unknown":
            raise StoreError(f"{path}: unknown format; supported: {KNOWN}")
        histories.files[kind] += 1
        histories.sessions += sessions
        return histories
    for file in sorted(one for one in path.rglob("*") if one.suffix in _SUFFIXES and one.is_file()):
        kind, sessions = _read(file, lenient=True)
        histories.files[kind] += 1
        histories.sessions += sessions
    if not histories.sessions:
        raise StoreError(f"{path}: the folder contains no file of a supported format: {KNOWN}")
    return histories


def _read(file: Path, lenient: bool = False) -> tuple[str, list[PastSession]]:
    """Returns format and sessions of a file. Raises StoreError for invalid JSON, unless `lenient`."""
    try:
        with file.open("rb") as opened:
            head = opened.read(len(_SQLITE))
        if head == _SQLITE:
            return "hermes", read_hermes_database(file)
        values = list(values_of(file))
    except OSError as error:
        raise StoreError(f"cannot read {file}: {error.strerror}") from error
    except StoreError:
        if lenient:
            return "unknown", []
        raise
    return _sessions(values, file.stem)


def _sessions(values: list[Any], name: str) -> tuple[str, list[PastSession]]:
    lines = [value for value in values if isinstance(value, dict)]
    first = lines[0] if lines else None
    if is_openclaw(first):
        return "openclaw", read_openclaw(lines)
    if any(is_claude(line) for line in lines[:20]) and not is_hermes(first):
        return "claude", read_claude(lines)
    if is_atif(first):
        return "atif", _each(lines, name, is_atif, read_atif)
    if is_chatgpt(first):
        return "chatgpt", _each(lines, name, is_chatgpt, read_chatgpt)
    if is_sharegpt(first):
        return "sharegpt", _each(lines, name, is_sharegpt, read_sharegpt)
    if is_hermes(first):
        return "hermes", _each(lines, name, is_hermes, read_hermes)
    return "unknown", []


def _each(lines: list[Line], name: str, fits: Callable[[object], bool], read: Reader) -> list[PastSession]:
    sessions: list[PastSession] = []
    for number, line in enumerate(lines):
        if fits(line):
            sessions += read(line, f"{name}-{number}" if number else name)
    return sessions


def values_of(file: Path) -> Iterator[Any]:
    """Yields the JSON values of a file: one value, the items of one list, or one value per line.

    An invalid last line is skipped, because a program may still be writing it. Raises StoreError for invalid JSON in
    other lines, and OSError.
    """
    data = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        whole = orjson.loads(data)
    except orjson.JSONDecodeError:
        lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
        for number, line in lines:
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as error:
                if number == lines[-1][0] and number > 1:
                    return
                raise StoreError(f"{file} line {number}: not valid JSON: {error}") from error
        return
    yield from whole if isinstance(whole, list) else [whole]
