"""Command line of the rollout store: python -m openclaw.store COMMAND --rl-buffer-dir DIR

Counts are printed as one JSON line.
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
    """Counts turns and samples by state, and drops by reason."""


@dataclass(frozen=True, kw_only=True)
class Sessions(BufferAddress):
    """Lists sessions, the newest first, a JSON line each; no content."""

    person: str | None = flag(None, "delete only this person's data")


class People(BufferAddress):
    """Lists the people that are known by name, a JSON line each."""


@dataclass(frozen=True, kw_only=True)
class Backup(BufferAddress):
    """Copies a SQLite buffer into a file, also while it is used."""

    file: Path = flag(REQUIRED, "output file, which must not exist", positional=True)


@dataclass(frozen=True, kw_only=True)
class Export(BufferAddress):
    """Writes the buffer, or a part of it, as JSON lines."""

    output: Path | None = flag(None, "output file, readable only by you; default: stdout", unit="path")
    format: Literal["jsonl", "atif"] = flag("jsonl", "atif: one trajectory per session")
    session: str | None = flag(None, "export only this session")
    person: str | None = flag(None, "export only turns of this person")


@dataclass(frozen=True, kw_only=True)
class ImportAny(BufferAddress):
    """Imports an exported file, conversations, session logs of OpenClaw, Hermes or Claude
    Code, ATIF. Known entries stay unchanged."""

    file: str = flag(
        REQUIRED,
        "file or folder, or openclaw, hermes or claude for their own log folders",
        positional=True,
    )
    model_path: Path | None = flag(None, "folder of the trained model; not for an exported file", unit="path")
    person: str | None = flag(None, "person to store with turns that are imported from logs")
    dry_run: bool = flag(False, "count the turns to import and store nothing")


@dataclass(frozen=True, kw_only=True)
class ImportConversations(BufferAddress):
    """Adds conversations (JSON or JSON lines) to be judged and trained."""

    file: Path = flag(REQUIRED, "file, or folder of .json and .jsonl files", positional=True)
    model_path: Path = flag(REQUIRED, "folder of the trained model", unit="path")


@dataclass(frozen=True, kw_only=True)
class DeleteSession(BufferAddress):
    """Deletes a session with everything that derives from it."""

    session: str = flag(REQUIRED, "id of the session", positional=True)


@dataclass(frozen=True, kw_only=True)
class DeletePerson(BufferAddress):
    """Deletes everything of a person."""

    person: str = flag(REQUIRED, "name of the person", positional=True)


@dataclass(frozen=True, kw_only=True)
class Purge(BufferAddress):
    """Deletes old turns that are trained, dropped or ended; never ready or leased samples."""

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
    """Returns the exit status: 0 done, 2 failed, with one line on stderr."""
    about = "Looks after a rollout buffer."
    _, asked = parse_command(COMMANDS, argv, "python -m openclaw.store", about, VERSION)
    try:
        result = _import(asked) if isinstance(asked, ImportAny) else _run(asked, _open(asked))
    except (ConfigError, StoreError) as error:
        print(f"openclaw.store: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the pipe has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if result is not None:
        print(json.dumps(result))
    return 0


def _open(asked: BufferAddress) -> RolloutStore:
    """Opens the store; only imports create a missing one."""
    makes = isinstance(asked, ImportAny | ImportConversations)
    if asked.rl_buffer_dir and not makes and not (Path(asked.rl_buffer_dir) / "buffer.db").is_file():
        raise StoreError(f"no rollout buffer in {asked.rl_buffer_dir}: there is no buffer.db")
    return RolloutStore(asked.buffer)


def _run(asked: BufferAddress, store: RolloutStore) -> dict[str, Any] | None:
    match asked:
        case Export():
            return _export(asked, store)
        case Sessions():
            _list(store.sessions.listing(asked.person))
        case People():
            _list(store.people.listing())
        case Backup():
            return _backup(asked)
        case ImportConversations():
            from openclaw.store.files.tokenizing import import_conversations

            return import_conversations(store, asked.file, asked.model_path)
        case DeleteSession():
            return _checked_deletion(
                store.deletion.delete_session(asked.session), f"session {asked.session!r}"
            )
        case DeletePerson():
            return _checked_deletion(store.deletion.delete_person(asked.person), f"person {asked.person!r}")
        case Purge():
            return store.deletion.purge(asked.retention_days)
        case _:
            return {**store.status.counts(), "live_version": store.versions.live()}
    return None


def _backup(asked: Backup) -> dict[str, int]:
    from openclaw.store.copies import backup

    if asked.rl_buffer_url:
        raise StoreError("backup supports only SQLite; use pg_dump for a PostgreSQL buffer")
    return backup(Path(asked.buffer), asked.file)


def _import(asked: ImportAny) -> dict[str, Any]:
    """Imports a file; a dry run does not create a store. Raises StoreError, ConfigError."""
    from openclaw.store.history.any_file import Import

    request = Import(asked.file, asked.model_path, asked.person)
    return request.summary() if asked.dry_run else request.into(lambda: _open(asked))


def _export(asked: Export, store: RolloutStore) -> dict[str, Any] | None:
    if asked.format == "atif":
        return _export_atif(asked, store)
    from openclaw.store.files.exporting import export_lines

    lines = export_lines(store, asked.session, asked.person)
    if asked.output is None:
        _to_stdout(lines)
        return None
    return {"lines": _to_file(asked.output, lines)}


def _export_atif(asked: Export, store: RolloutStore) -> dict[str, Any] | None:
    """Writes a folder with one file a session."""
    from openclaw.store.history.writing_atif import dump_trajectory, trajectories, trajectory_file

    written = trajectories(store, asked.session, asked.person)
    if asked.output is None:
        _to_stdout(dump_trajectory(one, indent=False) for one in written)
        return None
    try:
        asked.output.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {asked.output}: {error.strerror}") from error
    used: set[str] = set()
    for one in written:
        _to_file(asked.output / trajectory_file(one["session_id"], used), [dump_trajectory(one, indent=True)])
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
