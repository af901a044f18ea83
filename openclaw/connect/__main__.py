"""Configures a client to use this server: `python -m openclaw.connect CLIENT`.

It sends a test request to the server, which is never trained on, and prints how the server classified it. Then it
writes the settings file of the client, with a backup. For OpenClaw it also adds a plug-in, and runs OpenClaw's own
validation. --remove undoes the changes; --print-only writes nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_base.settings import command_line
from claw_base.settings.declare import flag
from openclaw.chat.client import ChatError, Server
from openclaw.chat.turn_status import describe
from openclaw.clients.client import Model
from openclaw.common.version import VERSION
from openclaw.connect import own_file
from openclaw.connect.entries import connected, disconnected, provider_entry, remarks
from openclaw.connect.files import NotPlainJson, read_config, readable_by_others, restore, write_config
from openclaw.connect.program import Program, find_program, validation_error
from openclaw.connect.settings import PRINTED, WRITTEN, ConnectSettings
from openclaw.errors import ConfigError

EXTENSION = Path(__file__).resolve().parents[2] / "extensions" / "rl-training-headers"
LEAST_CONTEXT = {"openclaw": 16_000, **{name: own.least_context for name, own in WRITTEN.items()}}
NAMES = ("openclaw", *WRITTEN, *PRINTED)
TEST_SESSION = "openclaw-connect-test"


@dataclass(frozen=True, kw_only=True)
class ClientArgument:
    """The positional argument: the name of the client."""

    name: str | None = flag(
        None, f"client to connect: {', '.join(NAMES)}; default openclaw", positional=True, unit="CLIENT"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 for success, 1 if connecting failed, 2 for an invalid command line."""
    about = "Configure OpenClaw, or another client, to use this server."
    parser = command_line.parser_of(ConnectSettings, "python -m openclaw.connect", about, VERSION)
    command_line.add_flags(parser, ClientArgument)
    args = parser.parse_args(argv)
    args.client = args.name or args.client
    settings = command_line.loaded(parser, ConnectSettings, args)
    try:
        if settings.remove and settings.client in WRITTEN:
            own_file.remove(settings.client)
        elif settings.remove:
            remove(settings)
        else:
            connect(settings)
    except (ConfigError, ChatError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def connect(settings: ConnectSettings) -> None:
    """Tests the server, then writes or prints the settings of the client. Raises ConfigError, ChatError."""
    model = check_server(settings)
    if settings.client in PRINTED:
        # the printed settings name the variable, because they may be shared
        key = "$SGLANG_API_KEY" if settings.api_key is not None else "no-key-needed"
        print(PRINTED[settings.client](settings.base_url, model, key), end="")
        return
    if settings.client in WRITTEN:
        own_file.connect(settings, model)
        return
    program = find_program()
    extension = chosen_extension(settings, program)
    entry = provider_entry(settings.base_url, settings.api_key, model)
    if settings.print_only:
        print(json.dumps(addition(settings, entry, extension), indent=2))
        return
    config = readable_config(settings, program, addition(settings, entry, extension))
    earlier = read_notes(settings)
    new, notes = connected(
        config, settings.provider, entry, not settings.keep_model, extension, settings.replace, earlier
    )
    write_config(
        notes_file(settings), notes, keep_old=False
    )  # written first, so that changes can always be undone
    try:
        write(settings, program, new)
    except ConfigError:
        restore_notes(settings, earlier)
        raise
    print_warnings(settings, remarks(new, notes))
    used = f"OpenClaw now uses {settings.provider}/{model.id} by default"
    offered = f"OpenClaw now offers {settings.provider}/{model.id}"
    print(
        f"{offered if settings.keep_model else used}. If its gateway is running, restart it: openclaw gateway restart"
    )
    print("To follow its turns, run: ./claw watch")


def readable_config(settings: ConnectSettings, program: Program, snippet: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of OpenClaw. Raises ConfigError.

    If the file has comments, first prints the settings to add manually.
    """
    try:
        return read_config(settings.config_file)
    except NotPlainJson as error:
        problem = validation_error(program, settings.config_file)
        if problem is not None:
            raise ConfigError(f"{error}; OpenClaw also rejects this file: {problem}") from error
        print("Add these settings manually:", json.dumps(snippet, indent=2), sep="\n")
        raise


def restore_notes(settings: ConnectSettings, earlier: dict[str, Any]) -> None:
    """Restores the notes from before this run, after the settings could not be written."""
    if earlier:
        write_config(notes_file(settings), earlier, keep_old=False)
    else:
        notes_file(settings).unlink()


def print_warnings(settings: ConnectSettings, warnings: list[str]) -> None:
    """Prints warnings, also if other users can read the key in the settings file."""
    if settings.api_key and readable_by_others(settings.config_file):
        warnings = [
            *warnings,
            f"other users can read the key in {settings.config_file}; run: chmod 600 {settings.config_file}",
        ]
    for line in warnings:
        print(f"warning: {line}", file=sys.stderr)


def check_server(settings: ConnectSettings) -> Model:
    """Sends a side turn, prints how it was classified, and returns the served model.

    Raises ChatError; ConfigError if the context is too short for the client.
    """
    server = Server(settings.base_url, settings.api_key)
    try:
        served = server.models()[0]
        if "max_model_len" not in served:
            raise ConfigError(
                f"{server.url} is not an OpenClaw-RL server: its /v1/models has no max_model_len for "
                f"{served['id']}"
            )
        model = Model(str(served["id"]), int(served["max_model_len"]), settings.max_tokens)
        print(
            f"server: {server.url} serves {model.id} with {model.context} tokens of context", file=sys.stderr
        )
        message = [{"role": "user", "content": "Connection test: say hello."}]
        answers = list(server.chat(message, TEST_SESSION, model=model.id, max_tokens=8, turn_type="side"))
        status = server.turn(answers[-1].completion_id) if answers else None
        test_result = (
            "the server answers, but does not record turns"
            if status is None
            else f"test turn: {describe(status)}"
        )
        print(test_result, file=sys.stderr)
    finally:
        server.close()
    least = LEAST_CONTEXT.get(settings.client, 0)
    if model.context < least:
        name = "OpenClaw" if settings.client == "openclaw" else settings.client
        raise ConfigError(
            f"{name} needs {least} tokens of context, but the server allows {model.context}: serve another model, or "
            "raise --context-length if the model supports it"
        )
    return model


def chosen_extension(settings: ConnectSettings, program: Program) -> str | None:
    """Returns the folder of the plug-in; None if it is disabled or OpenClaw is too old for it (prints a warning).

    Raises ConfigError if the folder does not exist.
    """
    if program.problem:
        print(f"warning: {program.problem}", file=sys.stderr)
    if settings.no_extension:
        return None
    if not program.can_load_plugin:
        print(
            f"warning: OpenClaw {program.shown} cannot load the plug-in, which requires 2026.9; the server will match "
            "sessions by their transcripts",
            file=sys.stderr,
        )
        return None
    if not EXTENSION.is_dir():
        raise ConfigError(
            f"the plug-in folder {EXTENSION} does not exist: run from a checkout, or pass --no-extension"
        )
    return str(EXTENSION)


def addition(settings: ConnectSettings, entry: dict[str, Any], extension: str | None) -> dict[str, Any]:
    """Returns the settings that connecting adds, with a placeholder for the key."""
    shown = {**entry, "apiKey": "THE SERVER'S KEY" if settings.api_key else entry["apiKey"]}
    return connected({}, settings.provider, shown, not settings.keep_model, extension, settings.replace)[0]


def write(settings: ConnectSettings, program: Program, content: dict[str, Any]) -> None:
    """Writes openclaw.json; restores the old file if OpenClaw rejects the new one. Raises ConfigError."""
    backup = write_config(settings.config_file, content)
    problem = validation_error(program, settings.config_file)
    if problem is not None:
        restore(settings.config_file, backup)
        if backup is not None and validation_error(program, settings.config_file) is not None:
            raise ConfigError(
                f"OpenClaw rejects {settings.config_file} even without the change; correct it first: {problem}"
            )
        raise ConfigError(f"OpenClaw rejects the new settings, so the old ones were restored: {problem}")
    print(f"written: {settings.config_file}" + (f", backup: {backup}" if backup else ""))


def remove(settings: ConnectSettings) -> None:
    """Undoes the changes of `connect`. Raises ConfigError if there is nothing to undo."""
    notes = read_notes(settings)
    if not notes:
        raise ConfigError(f"nothing to undo: {notes_file(settings)} does not exist")
    config = read_config(settings.config_file)
    new = disconnected(config, notes)
    write(settings, find_program(), new)
    notes_file(settings).unlink()
    name = notes["provider"]
    left = new.get("models", {}).get("providers", {}).get(name)
    if left is not None and left != notes.get("before"):
        print_warnings(settings, [f"models.providers.{name} was changed after connecting, so it was kept"])
    print(f"removed the settings for {notes['address']}")


def notes_file(settings: ConnectSettings) -> Path:
    """Returns the file next to openclaw.json that stores the previous settings."""
    return settings.config_file.with_name("openclaw-rl-connect.json")


def read_notes(settings: ConnectSettings) -> dict[str, Any]:
    return read_config(notes_file(settings))


if __name__ == "__main__":
    sys.exit(main())
