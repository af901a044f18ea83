"""The rollout store at the command line: python -m openclaw.store COMMAND --rl-buffer-dir DIR

Counts are printed as one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from openclaw.common.version import add_version
from openclaw.errors import ConfigError, StoreError
from openclaw.settings import add_buffer_flags
from openclaw.store import RolloutStore


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    where = argparse.ArgumentParser(add_help=False)
    add_buffer_flags(where.add_mutually_exclusive_group(required=True))
    parser = argparse.ArgumentParser(
        prog="python -m openclaw.store", description="Looks after a rollout buffer."
    )
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[where], help=text, description=text)

    add("stats", "Counts turns and samples by state, and drops by reason.")
    found = add("sessions", "Lists sessions, the newest first, a JSON line each; no content.")
    found.add_argument("--person", help="only this person's")
    add("people", "Lists the people that are known by name, a JSON line each.")
    copy = add("backup", "Copies a SQLite buffer into a file, also while it is used.")
    copy.add_argument("file", type=Path, help="a file that is not there yet")
    export = add("export", "Writes the buffer, or a part of it, as JSON lines.")
    export.add_argument("--output", type=Path, help="file to write (readable by you alone); default: stdout")
    export.add_argument(
        "--format", choices=("jsonl", "atif"), default="jsonl", help="atif: a trajectory a session"
    )
    export.add_argument("--session", help="only this session")
    export.add_argument("--person", help="only what this person said")
    load = add(
        "import",
        "Adds what was kept elsewhere: an exported file, conversations, session logs of OpenClaw, Hermes or Claude"
        " Code, ATIF. What is known already stays as it is.",
    )
    load.add_argument(
        "file", help="a file or folder, or openclaw, hermes or claude: where these keep their logs"
    )
    load.add_argument(
        "--model-path", type=Path, help="folder of the model that is trained; not for an exported file"
    )
    load.add_argument("--person", help="who talked, to be stored with the turns of logs")
    load.add_argument("--dry-run", action="store_true", help="only says what was found")
    talks = add("import-conversations", "Adds conversations (JSON or JSON lines) to be judged and trained.")
    talks.add_argument("file", type=Path, help="a file, or a folder of .json and .jsonl files")
    talks.add_argument("--model-path", type=Path, required=True, help="folder of the model that is trained")
    session = add("delete-session", "Deletes a session with everything that derives from it.")
    session.add_argument("session")
    person = add("delete-person", "Deletes everything of a person.")
    person.add_argument("person")
    purge = add(
        "purge", "Deletes old turns that are trained, dropped or ended; never ready or leased samples."
    )
    purge.add_argument("--retention-days", type=float, required=True, help="age from which turns go")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 not possible, with one line on stderr."""
    args = build_parser().parse_args(argv)
    try:
        result = _import(args) if args.command == "import" else _run(args, _open(args))
    except (ConfigError, StoreError) as error:
        print(f"openclaw.store: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the export has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if result is not None:
        print(json.dumps(result))
    return 0


def _open(args: argparse.Namespace) -> RolloutStore:
    """Only the imports make a buffer that is not there."""
    makes = args.command in ("import", "import-conversations")
    if args.rl_buffer_dir and not makes and not (Path(args.rl_buffer_dir) / "buffer.db").is_file():
        raise StoreError(f"no rollout buffer in {args.rl_buffer_dir}: there is no buffer.db")
    return RolloutStore(args.rl_buffer_url or args.rl_buffer_dir)


def _run(args: argparse.Namespace, store: RolloutStore) -> dict[str, Any] | None:
    match args.command:
        case "stats":
            return {**store.status.counts(), "live_version": store.versions.live()}
        case "export":
            return _export(args, store)
        case "sessions" | "people" | "backup":
            return _overview(args, store)
        case "import-conversations":
            from openclaw.store.files.tokenizing import import_conversations

            return import_conversations(store, args.file, args.model_path)
        case "delete-session":
            return _found(store.deletion.delete_session(args.session), f"session {args.session!r}")
        case "delete-person":
            return _found(store.deletion.delete_person(args.person), f"person {args.person!r}")
        case _:
            return store.deletion.purge(args.retention_days)


def _overview(args: argparse.Namespace, store: RolloutStore) -> dict[str, int] | None:
    from openclaw.store.copies import backup

    if args.command == "backup":
        if args.rl_buffer_url:
            raise StoreError("backup copies a SQLite buffer; of a PostgreSQL one, pg_dump does")
        return backup(Path(args.rl_buffer_dir), args.file)
    rows = store.people.listing() if args.command == "people" else store.sessions.listing(args.person)
    _to_stdout(json.dumps(row).encode() + b"\n" for row in rows)
    return None


def _import(args: argparse.Namespace) -> dict[str, Any]:
    """A dry run makes no buffer. Raises StoreError, ConfigError."""
    from openclaw.store.history.any_file import Import

    wanted = Import(args.file, args.model_path, args.person)
    return wanted.found() if args.dry_run else wanted.into(lambda: _open(args))


def _export(args: argparse.Namespace, store: RolloutStore) -> dict[str, Any] | None:
    if args.format == "atif":
        return _export_atif(args, store)
    from openclaw.store.files.exporting import export_lines

    lines = export_lines(store, args.session, args.person)
    if args.output is None:
        _to_stdout(lines)
        return None
    return {"lines": _to_file(args.output, lines)}


def _export_atif(args: argparse.Namespace, store: RolloutStore) -> dict[str, Any] | None:
    """Into a folder, a file a session."""
    from openclaw.store.history.writing_atif import dump_trajectory, trajectories, trajectory_file

    found = trajectories(store, args.session, args.person)
    if args.output is None:
        _to_stdout(dump_trajectory(one, indent=False) for one in found)
        return None
    try:
        args.output.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {args.output}: {error.strerror}") from error
    count = 0
    for one in found:
        _to_file(args.output / trajectory_file(one["session_id"]), [dump_trajectory(one, indent=True)])
        count += 1
    return {"trajectories": count}


def _to_stdout(lines: Iterable[bytes]) -> None:
    for line in lines:
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _to_file(path: Path, lines: Iterable[bytes]) -> int:
    """How many lines were written, whole or not at all. Raises StoreError."""
    unfinished = path.with_name(path.name + ".part")
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            written = sum(1 for line in lines if file.write(line))
        unfinished.replace(path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    return written


def _found(deleted: dict[str, int], what: str) -> dict[str, int]:
    if not any(deleted.values()):
        raise StoreError(f"no {what} in the buffer: nothing was deleted")
    return deleted


if __name__ == "__main__":
    sys.exit(main())
