"""python -m openclaw.connect CLIENT: makes a client use this model, and shows how its turns will be classified.

It checks the server with a side turn (never trained) and writes the client's settings file, with a backup. For
OpenClaw it writes the provider entry and the plug-in, and lets OpenClaw validate them. --remove undoes it;
--print-only writes nothing.
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
from openclaw.connect.program import Program, complaint, find_program
from openclaw.connect.settings import PRINTED, WRITTEN, ConnectSettings
from openclaw.errors import ConfigError

EXTENSION = Path(__file__).resolve().parents[2] / "extensions" / "rl-training-headers"
LEAST_CONTEXT = {"openclaw": 16_000, **{name: own.least_context for name, own in WRITTEN.items()}}
NAMES = ("openclaw", *WRITTEN, *PRINTED)
TEST_SESSION = "openclaw-connect-test"


@dataclass(frozen=True, kw_only=True)
class FirstWord:
    """The positional argument: the client."""

    name: str | None = flag(
        None, f"one of {', '.join(NAMES)}; default openclaw", positional=True, unit="CLIENT"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 if connecting failed; 2 for an invalid command line."""
    about = "Connect OpenClaw, or another client, with this server."
    parser = command_line.parser_of(ConnectSettings, "python -m openclaw.connect", about, VERSION)
    command_line.add_flags(parser, FirstWord)
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
    """Checks the server, then writes or prints the settings. Raises ConfigError and ChatError."""
    model = check_server(settings)
    if settings.client in PRINTED:
        # the key's variable is shown, never the key
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
        put_back_notes(settings, earlier)
        raise
    warn_of(settings, remarks(new, notes))
    used = f"OpenClaw now uses {settings.provider}/{model.id}"
    offered = f"OpenClaw now knows {settings.provider}/{model.id}"
    print(
        f"{offered if settings.keep_model else used}. Restart its gateway if it runs: openclaw gateway restart"
    )
    print("Talk to it, and watch its turns with: ./claw watch, or GET /status of the server")


def readable_config(settings: ConnectSettings, program: Program, snippet: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of OpenClaw. Raises ConfigError; if the file has comments, it first prints what to add by
    hand."""
    try:
        return read_config(settings.config_file)
    except NotPlainJson as error:
        problem = complaint(program, settings.config_file)
        if problem is not None:
            raise ConfigError(f"{error}; OpenClaw rejects it too, fix it first: {problem}") from error
        print("Add this to it by hand:", json.dumps(snippet, indent=2), sep="\n")
        raise


def put_back_notes(settings: ConnectSettings, earlier: dict[str, Any]) -> None:
    if earlier:
        write_config(notes_file(settings), earlier, keep_old=False)
    else:
        notes_file(settings).unlink()


def warn_of(settings: ConnectSettings, warnings: list[str]) -> None:
    if settings.api_key and readable_by_others(settings.config_file):
        warnings = [*warnings, f"other users can read the key in {settings.config_file}: chmod 600 it"]
    for line in warnings:
        print(f"warning: {line}", file=sys.stderr)


def check_server(settings: ConnectSettings) -> Model:
    """Sends a side turn and prints how it was classified. Raises ChatError, and ConfigError if the context is too
    short."""
    server = Server(settings.base_url, settings.api_key)
    try:
        served = server.models()[0]
        if "max_model_len" not in served:
            raise ConfigError(
                f"{server.url} serves {served['id']}, but is not an OpenClaw-RL server: its /v1/models names no "
                "max_model_len"
            )
        model = Model(str(served["id"]), int(served["max_model_len"]), settings.max_tokens)
        print(f"server: {server.url} serves {model.id}, {model.context} tokens of context", file=sys.stderr)
        message = [{"role": "user", "content": "Connection test: say hello."}]
        answers = list(server.chat(message, TEST_SESSION, model=model.id, max_tokens=8, turn_type="side"))
        status = server.turn(answers[-1].completion_id) if answers else None
        seen = "it answers, but records no turns" if status is None else f"test turn: {describe(status)}"
        print(seen, file=sys.stderr)
    finally:
        server.close()
    least = LEAST_CONTEXT.get(settings.client, 0)
    if model.context < least:
        name = "OpenClaw" if settings.client == "openclaw" else settings.client
        raise ConfigError(
            f"{name} needs {least} tokens of context, this model has {model.context}; serve another one, or "
            "raise --context-length if the model can do more"
        )
    return model


def chosen_extension(settings: ConnectSettings, program: Program) -> str | None:
    """Returns the plug-in's folder if it is requested and can be loaded; else prints why not."""
    if program.problem:
        print(f"warning: {program.problem}", file=sys.stderr)
    if settings.no_extension:
        return None
    if not program.can_load_plugin:
        print(
            f"warning: OpenClaw {program.shown} cannot load the plug-in (2026.9 can); sessions are found by their "
            "transcripts instead",
            file=sys.stderr,
        )
        return None
    if not EXTENSION.is_dir():
        raise ConfigError(f"the plug-in is not at {EXTENSION}; run from a checkout, or give --no-extension")
    return str(EXTENSION)


def addition(settings: ConnectSettings, entry: dict[str, Any], extension: str | None) -> dict[str, Any]:
    """Returns the settings that connecting adds to empty ones; the key is not shown."""
    shown = {**entry, "apiKey": "THE SERVER'S KEY" if settings.api_key else entry["apiKey"]}
    return connected({}, settings.provider, shown, not settings.keep_model, extension, settings.replace)[0]


def write(settings: ConnectSettings, program: Program, content: dict[str, Any]) -> None:
    """Writes openclaw.json; restores the old file if OpenClaw rejects the new one. Raises ConfigError."""
    backup = write_config(settings.config_file, content)
    problem = complaint(program, settings.config_file)
    if problem is not None:
        restore(settings.config_file, backup)
        if backup is not None and complaint(program, settings.config_file) is not None:
            raise ConfigError(
                f"OpenClaw rejects {settings.config_file} even without the change, fix it first: {problem}"
            )
        raise ConfigError(f"OpenClaw rejects the new settings, the old ones were restored: {problem}")
    print(f"written: {settings.config_file}" + (f", backup: {backup}" if backup else ""))


def remove(settings: ConnectSettings) -> None:
    """Undoes the changes of `connect`. Raises ConfigError if there is nothing to undo."""
    notes = read_notes(settings)
    if not notes:
        raise ConfigError(f"nothing to undo: there is no {notes_file(settings)}")
    config = read_config(settings.config_file)
    new = disconnected(config, notes)
    write(settings, find_program(), new)
    notes_file(settings).unlink()
    name = notes["provider"]
    left = new.get("models", {}).get("providers", {}).get(name)
    if left is not None and left != notes.get("before"):
        warn_of(settings, [f"models.providers.{name} was changed since and was left as it is"])
    print(f"removed what connecting with {notes['address']} had added")


def notes_file(settings: ConnectSettings) -> Path:
    """Returns the file next to openclaw.json that stores the previous settings."""
    return settings.config_file.with_name("openclaw-rl-connect.json")


def read_notes(settings: ConnectSettings) -> dict[str, Any]:
    return read_config(notes_file(settings))


if __name__ == "__main__":
    sys.exit(main())
