"""Connects a client through its own settings file, and undoes the connection.

A backup of the original file is next to it. If the file was not changed since, undoing restores the backup byte for
byte. Else it removes only the values that connecting wrote.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openclaw.clients.client import Link, Model, OwnFile
from openclaw.connect.files import read_config, read_text, readable_by_others, write_config, write_text
from openclaw.connect.forms import ABSENT, Config, NotEditable, Values, edit, parse, put_in, take_out
from openclaw.connect.settings import WRITTEN, ConnectSettings
from openclaw.errors import ConfigError

NOTES = "openclaw-rl-connect.json"
NO_KEY = "no-key-needed"


def settings_file(own: OwnFile, environ: Mapping[str, str]) -> Path:
    """Returns the path of the settings file of a client."""
    folder = Path(own.folder).expanduser()
    for name, inner in reversed(own.variables):
        folder = Path(environ[name]).expanduser() / inner if environ.get(name) else folder
    files = [folder / name for name in own.names]
    return next((file for file in files if file.exists()), files[0])


def connect(settings: ConnectSettings, model: Model) -> None:
    """Writes or prints the settings. Raises ConfigError."""
    own, name = WRITTEN[settings.client], settings.client
    if settings.keep_model and not own.has_default:
        raise ConfigError(f"--keep-model cannot be used with {name}, which supports only one model")
    link = Link(
        settings.base_url, settings.api_key or NO_KEY, model, settings.provider, not settings.keep_model
    )
    values = own.entries(link)
    if settings.print_only:
        print(_shown(own, values, settings.api_key), end="")
        return
    file = settings_file(own, os.environ)
    earlier, text = read_config(file.with_name(NOTES)), read_text(file)
    try:
        config = _without(parse(text or "", own.form), earlier)
        new, before = put_in(config, values)
        edited = edit(text or "", own.form, new)
    except NotEditable as error:
        print(
            f"Add these settings to {file} manually:", _shown(own, values, settings.api_key), sep="\n", end=""
        )
        raise ConfigError(f"{file}: {error}; it was not changed") from error
    if not settings.replace:
        _check_provider(file, before, values, link)
    _write(file, text, edited, earlier, {"values": _as_list(values), "before": before})
    if settings.api_key and readable_by_others(file):
        print(f"warning: other users can read the key in {file}; run: chmod 600 {file}", file=sys.stderr)
    if shutil.which(own.start) is None:
        print(f"warning: {own.start} is not on PATH; install it", file=sys.stderr)
    print(f"{name} now {'uses' if link.default else 'offers'} {model.id}; start it with: {own.start}")
    print("To follow its turns, run: ./claw watch")


def remove(name: str) -> None:
    """Undoes the changes of `connect`. Raises ConfigError if there is nothing to undo."""
    own = WRITTEN[name]
    file = settings_file(own, os.environ)
    notes = read_config(file.with_name(NOTES))
    if not notes:
        raise ConfigError(f"nothing to undo: {file.with_name(NOTES)} does not exist")
    text = read_text(file)
    kept: list[str] = []
    backup = Path(notes["backup"]) if notes["backup"] else None
    if text is not None and _digest(text) == notes["digest"] and (backup is None or backup.exists()):
        if backup is None:
            file.unlink()
        else:
            write_text(file, backup.read_bytes().decode(), keep_old=False)
    elif text is not None:
        try:
            new, kept = take_out(parse(text, own.form), _values(notes), notes["before"])
            write_text(file, edit(text, own.form, new))
        except NotEditable as error:
            raise ConfigError(
                f"{file}: {error}; undo the change manually{'' if backup is None else f', the backup is {backup}'}"
            ) from error
    file.with_name(NOTES).unlink()
    for one in kept:
        print(f"warning: {one} was changed after connecting, so it was kept", file=sys.stderr)
    print(f"removed the settings of this server from {file}")


def _write(file: Path, text: str | None, edited: str, earlier: Config, notes: Config) -> None:
    """Writes the settings and the notes.

    The notes are written first, so that each change can be undone. Notes without a digest remove only the written
    values.
    """
    untouched = bool(earlier) and text is not None and _digest(text) == earlier["digest"]
    write_config(file.with_name(NOTES), {**notes, "digest": "", "backup": None}, keep_old=False)
    backup = write_text(file, edited)
    first = earlier["backup"] if untouched else (str(backup) if backup else None)
    whole = untouched or not earlier
    notes = {**notes, "digest": _digest(edited) if whole else "", "backup": first}
    write_config(file.with_name(NOTES), notes, keep_old=False)
    print(f"written: {file}" + (f", backup: {backup}" if backup else ""))


def _check_provider(file: Path, before: list[list[Any]], values: Values, link: Link) -> None:
    """Raises ConfigError if the provider exists with another address."""
    for path, old in before:
        ours = values.get(tuple(path))
        if link.provider in path and ours == link.base_url and old not in (ABSENT, ours):
            raise ConfigError(
                f"{file}: {'.'.join(path)} is already {old}: choose another name with --provider, or overwrite it with "
                "--replace"
            )


def _without(config: Config, notes: Config) -> Config:
    return take_out(config, _values(notes), notes["before"])[0] if notes else config


def _shown(own: OwnFile, values: Values, key: str | None) -> str:
    """Returns the settings that connecting adds, with a placeholder for the key."""
    hidden = {path: "THE SERVER'S KEY" if key and value == key else value for path, value in values.items()}
    return edit("", own.form, put_in({}, hidden)[0])


def _as_list(values: Values) -> list[list[Any]]:
    return [[list(path), value] for path, value in values.items()]


def _values(notes: Config) -> Values:
    return {tuple(path): value for path, value in notes["values"]}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
