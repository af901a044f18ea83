"""Command line of the rollout store: `python -m openclaw.store COMMAND --rl-buffer-dir DIR`.

Lists are printed as JSON lines, counts as one JSON line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from claw_base.files import new_file
from claw_base.settings.command_line import parse_command
from claw_base.settings.declare import REQUIRED, flag
from openclaw.common.version import VERSION
from openclaw.errors import ConfigError, StoreError
from openclaw.settings import BufferAddress
from openclaw.store import RolloutStore


class Stats(BufferAddress):
    """Prints the number of turns and samples by state, and of drops by reason."""


@dataclass(frozen=True, kw_only=True)
class Sessions(BufferAddress):
    """Lists sessions without their content, newest first."""

    person: str | None = flag(None, "list only sessions of this person")


class People(BufferAddress):
    """Lists the named people, with the number of their turns."""


@dataclass(frozen=True, kw_only=True)
class Backup(BufferAddress):
    """Copies a SQLite buffer to a file, also while it is in use."""

    file: Path = flag(REQUIRED, "output file, which must not exist", positional=True)


@dataclass(frozen=True, kw_only=True)
class Export(BufferAddress):
    """Exports the buffer, or one session or person."""

    output: Path | None = flag(
        None, "output file (atif: folder), readable only by you; default: stdout", unit="path"
    )
    format: Literal["jsonl", "atif"] = flag("jsonl", "jsonl: for import; atif: one trajectory per session")
    session: str | None = flag(None, "export only this session")
    person: str | None = flag(None, "export only turns of this person")


@dataclass(frozen=True, kw_only=True)
class ImportAny(BufferAddress):
    """Imports an exported file, conversations, ATIF, or session logs of OpenClaw, Hermes or
    Claude Code. Stored entries do not change."""

    file: str = flag(
        REQUIRED,
        "file or folder; or openclaw, hermes or claude for the log folder of that program",
        positional=True,
    )
    model_path: Path | None = flag(
        None, "folder of the trained model; not needed for an exported file", unit="path"
    )
    person: str | None = flag(None, "person to store with turns that are imported from logs")
    dry_run: bool = flag(False, "print the number of turns and store nothing")


@dataclass(frozen=True, kw_only=True)
class ImportConversations(BufferAddress):
    """Imports conversations (JSON or JSON lines), which are then judged and trained."""

    file: Path = flag(REQUIRED, "file, or folder of .json and .jsonl files", positional=True)
    model_path: Path = flag(REQUIRED, "folder of the trained model", unit="path")


@dataclass(frozen=True, kw_only=True)
class DeleteSession(BufferAddress):
    """Deletes a session with all data derived from it."""

    session: str = flag(REQUIRED, "id of the session", positional=True)


@dataclass(frozen=True, kw_only=True)
class DeletePerson(BufferAddress):
    """Deletes all data of a person."""

    person: str = flag(REQUIRED, "name of the person", positional=True)


@dataclass(frozen=True, kw_only=True)
class Purge(BufferAddress):
    """Deletes old turns that are trained, dropped or ended, but no ready or leased samples."""

    retention_days: float = flag(REQUIRED, "age in days from which turns are deleted", unit="days")


COMMANDS: dict[str, type[BufferAddress]] = {
    "stats": Stats,
    "sessions": Sessions,
    "people": People,
    "backup": Backup,
    "export": Export,
    "import": ImportAny,
    "import-conversations": ImportConversations,
    "delete-session": DeleteSession,
    "delete-person": DeletePerson,
    "purge": Purge,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. Returns the exit status: 0 for success, 2 for an error, which is printed to stderr."""
    about = "Lists, exports, imports and deletes the content of a rollout buffer."
    _, command = parse_command(COMMANDS, argv, "python -m openclaw.store", about, VERSION)
    try:
        result = _import(command) if isinstance(command, ImportAny) else _run(command, _open(command))
    except (ConfigError, StoreError) as error:
        print(f"openclaw.store: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the pipe has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if result is not None:
        print(json.dumps(result))
    return 0


def _open(command: BufferAddress) -> RolloutStore:
    """Opens the store. Only imports create a missing store."""
    may_create = isinstance(command, ImportAny | ImportConversations)
    if command.rl_buffer_dir and not may_create and not (Path(command.rl_buffer_dir) / "buffer.db").is_file():
        raise StoreError(
            f"--rl-buffer-dir: no rollout buffer in {command.rl_buffer_dir}: there is no buffer.db"
        )
    return RolloutStore(command.buffer)


def _run(command: BufferAddress, store: RolloutStore) -> dict[str, Any] | None:
    match command:
        case Export():
            return _export(command, store)
        case Sessions():
            _list(store.sessions.listing(command.person))
        case People():
            _list(store.people.listing())
        case Backup():
            return _backup(command)
        case ImportConversations():
            from openclaw.store.files.tokenizing import import_conversations

            return import_conversations(store, command.file, command.model_path)
        case DeleteSession():
            return _checked_deletion(
                store.deletion.delete_session(command.session), f"session {command.session!r}"
            )
        case DeletePerson():
            return _checked_deletion(
                store.deletion.delete_person(command.person), f"person {command.person!r}"
            )
        case Purge():
            return store.deletion.purge(command.retention_days)
        case _:
            return {**store.status.counts(), "live_version": store.versions.live()}
    return None


def _backup(command: Backup) -> dict[str, int]:
    from openclaw.store.copies import backup

    if command.rl_buffer_url:
        raise StoreError("backup supports only SQLite; use pg_dump for --rl-buffer-url")
    return backup(Path(command.buffer), command.file)


def _import(command: ImportAny) -> dict[str, Any]:
    """Imports a file, or counts its entries for a dry run, which does not open the store. Raises StoreError,
    ConfigError."""
    from openclaw.store.history.any_file import Import

    request = Import(command.file, command.model_path, command.person)
    return request.summary() if command.dry_run else request.into(lambda: _open(command))


def _export(command: Export, store: RolloutStore) -> dict[str, Any] | None:
    if command.format == "atif":
        return _export_atif(command, store)
    from openclaw.store.files.exporting import export_lines

    lines = export_lines(store, command.session, command.person)
    if command.output is None:
        _to_stdout(lines)
        return None
    return {"lines": _to_file(command.output, lines)}


def _export_atif(command: Export, store: RolloutStore) -> dict[str, Any] | None:
    """Writes one file per session to a folder, or one JSON line per session to stdout."""
    from openclaw.store.history.writing_atif import dump_trajectory, trajectories, trajectory_file

    written = trajectories(store, command.session, command.person)
    if command.output is None:
        _to_stdout(dump_trajectory(one, indent=False) for one in written)
        return None
    try:
        command.output.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {command.output}: {error.strerror}") from error
    used: set[str] = set()
    for one in written:
        _to_file(
            command.output / trajectory_file(one["session_id"], used), [dump_trajectory(one, indent=True)]
        )
    return {"trajectories": len(used)}


def _list(rows: Iterable[dict[str, Any]]) -> None:
    _to_stdout(json.dumps(row).encode() + b"\n" for row in rows)


def _to_stdout(lines: Iterable[bytes]) -> None:
    for line in lines:
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _to_file(path: Path, lines: Iterable[bytes]) -> int:
    """Writes a file atomically. Returns the number of lines. Raises StoreError."""
    unfinished = path.with_name(path.name + ".part")
    try:
        with open(new_file(unfinished), "wb") as file:
            written = sum(1 for line in lines if file.write(line))
        unfinished.replace(path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    return written


def _checked_deletion(deleted: dict[str, int], what: str) -> dict[str, int]:
    if not any(deleted.values()):
        raise StoreError(f"no {what} in the buffer: nothing was deleted")
    return deleted


if __name__ == "__main__":
    sys.exit(main())
