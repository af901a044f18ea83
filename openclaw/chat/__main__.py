"""python -m openclaw.chat: talk to the model, and watch it learn.

Every line that begins with / is a command: /help lists them. Without a terminal (a pipe) it answers each line of its
input, then waits up to --wait seconds for the status of the turns. With --watch it sends nothing and reports
the turns of all clients, such as OpenClaw's, until Ctrl-C.
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

LOOK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class ChatSettings(ServerAddress):
    """Address of the server to talk to. Raises ConfigError."""

    api_key: str | None = flag(None, "The server's client key", env=("SGLANG_API_KEY",))
    person: str | None = flag(
        None, "Name of the person who talks, for preferences, adapters and ./claw forget"
    )
    wait: float = flag(
        30.0,
        "How long to wait for the last turns' status without a terminal, default 30",
        unit="seconds",
        least=0,
    )

    watch: bool = flag(False, "Follow the turns of all clients instead of chatting, until Ctrl-C")
    admin_key: str | None = flag(
        None,
        "Admin key of the server, for --watch (default: the key in the run folder)",
        env=("OPENCLAW_ADMIN_KEY",),
        variable_only=True,
    )

    def __post_init__(self) -> None:
        check(self)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 if the server cannot be used; 2 for an invalid command line."""
    parser = argparse.ArgumentParser(
        prog="python -m openclaw.chat", description="Talk to the model, and watch it learn."
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
    """Runs a chat. Raises ChatError if the server is unreachable at the start."""
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
        from openclaw.chat.terminal import terminal  # a pipe needs no line editor

        terminal(chat).run()
    else:
        converse(chat, sys.stdin)
        wait_for_turns(chat, wait)


def watch(server: Server, admin_key: str | None) -> None:
    """Prints the status of all turns as they change. Raises ChatError if the server is unreachable at the start, and
    KeyboardInterrupt; later it waits for the server."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    turns = AllTurns(lambda: server.newest_turns(admin_key))
    console.print(
        f"watching the turns at {server.url}, version {server.status()['weight_version']}; Ctrl-C ends it"
    )
    answers = True
    for line in turns.news():
        console.print(line)
    while True:
        time.sleep(LOOK_SECONDS)
        try:
            news = turns.news()
        except ChatError as error:  # a server that is started again comes back
            if answers:
                console.print(visible_line(f"{error}; waiting for it"))
            answers = False
            continue
        if not answers:
            console.print(f"{server.url} answers again")
        answers = True
        for line in news:
            console.print(line)


def wait_for_turns(chat: Chat, seconds: float) -> None:
    """Prints changes of the turns until all have ended or the time limit is reached."""
    end = time.monotonic() + seconds
    while True:
        for line in chat.watch.news():
            chat.show(f"  · {line}")
        if not chat.watch.open or time.monotonic() >= end:
            return
        time.sleep(min(LOOK_SECONDS, seconds))


if __name__ == "__main__":
    sys.exit(main())
