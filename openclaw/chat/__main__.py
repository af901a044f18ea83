"""Chat with the served model in a terminal: `python -m openclaw.chat`.

Lines that begin with / are commands; /help lists them. If stdin is not a terminal, each input line is one message; at
the end the program waits up to --wait seconds for the status of the turns. With --watch it sends nothing, and prints
the status of the turns of all clients, such as OpenClaw, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from claw_base.settings import command_line
from claw_base.settings.declare import check, flag
from openclaw.chat.client import ChatError, Server
from openclaw.chat.conversation import Chat, converse
from openclaw.chat.turn_status import AllTurns
from openclaw.common.address import ServerAddress, admin_key_for
from openclaw.common.version import add_version
from openclaw.common.visible import visible_line, without_controls
from openclaw.errors import ConfigError

POLL_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class ChatSettings(ServerAddress):
    """Settings of the chat, with the address of the server. Raises ConfigError."""

    api_key: str | None = flag(None, "Client key of the server", env=("SGLANG_API_KEY",))
    person: str | None = flag(None, "Your name, for preferences, adapters and ./claw forget")
    wait: float = flag(
        30.0,
        "Time to wait for the status of the last turns if stdin is no terminal, default 30",
        unit="seconds",
        least=0,
    )

    watch: bool = flag(
        False, "Print the status of the turns of all clients instead of chatting, until Ctrl-C"
    )
    admin_key: str | None = flag(
        None,
        "Admin key of the server, for --watch (default: the key in the run folder)",
        env=("OPENCLAW_ADMIN_KEY",),
        variable_only=True,
    )

    def __post_init__(self) -> None:
        check(self)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 for success, 1 if the server rejects requests or is unreachable, 2 for an invalid
    command line."""
    parser = argparse.ArgumentParser(
        prog="python -m openclaw.chat",
        description="Chat with the model, and see how each turn is judged and trained.",
    )
    add_version(parser)
    command_line.add_flags(parser, ChatSettings)
    try:
        settings = command_line.load(ChatSettings, vars(parser.parse_args(argv)))
    except ConfigError as error:
        parser.error(str(error))
    server = Server(settings.address(), settings.api_key, person=settings.person)
    try:
        if settings.watch:
            watch(server, admin_key_for(server.url, settings.admin_key, settings.run_dir))
        else:
            talk(server, settings.wait)
    except KeyboardInterrupt:
        return 0
    except ChatError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        server.close()
    return 0


def talk(server: Server, wait: float) -> None:
    """Runs a chat until the user leaves or the input ends. Raises ChatError if the server is unreachable at the start."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    model = server.models()[0]["id"]
    chat = Chat(
        server,
        model,
        lambda line: console.print(without_controls(line)),
        lambda piece: console.print(without_controls(piece), end=""),
    )
    version = server.status()["weight_version"]
    console.print(f"{model} at {server.url}, version {version}, session {chat.session}")
    if sys.stdin.isatty():
        from openclaw.chat.terminal import terminal  # the line editor is not needed for a pipe

        terminal(chat).run()
    else:
        converse(chat, sys.stdin)
        wait_for_turns(chat, wait)


def watch(server: Server, admin_key: str | None) -> None:
    """Prints changes in the status of all turns until Ctrl-C.

    Raises ChatError if the server is unreachable at the start; later it waits for the server. Raises KeyboardInterrupt.
    """
    console = Console(highlight=False, markup=False, soft_wrap=True)
    turns = AllTurns(lambda: server.newest_turns(admin_key))
    console.print(
        f"watching turns at {server.url}, version {server.status()['weight_version']}; press Ctrl-C to stop"
    )
    reachable = True
    for line in turns.news():
        console.print(line)
    while True:
        time.sleep(POLL_SECONDS)
        try:
            news = turns.news()
        except ChatError as error:  # the server may be restarting
            if reachable:
                console.print(visible_line(f"{error}; retrying until it is reachable"))
            reachable = False
            continue
        if not reachable:
            console.print(f"{server.url} is reachable again")
        reachable = True
        for line in news:
            console.print(line)


def wait_for_turns(chat: Chat, seconds: float) -> None:
    """Prints changes in the status of turns until all have ended or the time limit is reached."""
    end = time.monotonic() + seconds
    while True:
        for line in chat.watch.news():
            chat.show(f"  · {line}")
        if not chat.watch.open or time.monotonic() >= end:
            return
        time.sleep(min(POLL_SECONDS, seconds))


if __name__ == "__main__":
    sys.exit(main())
