"""python -m openclaw.chat: talk to the model, and watch it learn.

Every line that begins with / is a command: /help lists them. Without a terminal (a pipe) it answers each line of its
input, then waits up to --wait seconds for the status of the turns. With --watch it sends nothing and reports
the turns of all clients, such as OpenClaw's, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console

from openclaw.chat.client import ChatError, Server
from openclaw.chat.turn_status import AllTurns, TurnWatch
from openclaw.common import declare
from openclaw.common.declare import option
from openclaw.errors import ConfigError

LOOK_SECONDS = 1.0
HELP = """\
/good           the last answer was good        /bad            it was bad
/hint TEXT      what it should have done: becomes a hint for the model
/new            a new session                   /train on|off   whether your turns are trained on
/status         the server's counts             /quit           leave (so does Ctrl-D)"""


@dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """Where to talk. Raises ConfigError."""

    url: str = option(
        str, "http://127.0.0.1:30000/v1", "The server's address, default http://127.0.0.1:30000/v1"
    )
    api_key: str | None = option(str, None, "The server's client key", ("SGLANG_API_KEY",))
    wait: float = option(
        float,
        30.0,
        "How long to wait for the last turns' status without a terminal, default 30",
        unit="seconds",
        least=0,
    )

    watch: bool = option(bool, False, "Only tell what becomes of the turns of all clients, until Ctrl-C")
    admin_key: str | None = option(
        str, None, "The server's admin key, for --watch where it has one", ("OPENCLAW_ADMIN_KEY",), flag=False
    )

    def __post_init__(self) -> None:
        declare.check(self)


class Chat:
    """One person's conversation. `show` prints a line; pieces of answers go to `write`."""

    def __init__(
        self, server: Server, model: str, show: Callable[[str], None], write: Callable[[str], None]
    ) -> None:
        self.server, self.model, self.show, self.write = server, model, show, write
        self.watch = TurnWatch(server.turn)
        self.train = True
        self.begin()

    def begin(self) -> None:
        self.session = uuid.uuid4().hex[:12]
        self.messages: list[dict[str, str]] = []
        self.last = ""

    def line(self, text: str) -> bool:
        """Handles one line of input; False when the person leaves."""
        text = text.strip()
        if not text:
            return True
        if not text.startswith("/"):
            self.say(text)
            return True
        command, _, rest = text.partition(" ")
        if command in ("/quit", "/exit"):
            return False
        action = {"/good": self.good, "/bad": self.bad, "/hint": self.hint, "/new": self.new, "/train": self.switch,
                  "/status": self.status, "/help": self.help}.get(command)  # fmt: skip
        if action is None:
            self.show(f"there is no command {command}; /help lists them")
        else:
            action(rest.strip())
        return True

    def say(self, text: str) -> None:
        history = [*self.messages, {"role": "user", "content": text}]
        shown = 0
        answer = None
        for answer in self.server.chat(history, self.session, self.train, model=self.model):
            self.write(answer.text[shown:])
            shown = len(answer.text)
        self.write("\n")
        if answer is None:
            raise ChatError("the server sent an empty answer")
        self.messages = [*history, {"role": "assistant", "content": answer.text}]
        self.last = answer.completion_id
        if self.train:
            self.watch.add(answer.completion_id, f"answer {len(self.messages) // 2}")

    def good(self, _: str) -> None:
        self._word(thumbs="up")

    def bad(self, _: str) -> None:
        self._word(thumbs="down")

    def hint(self, text: str) -> None:
        if text:
            self._word(text=text)
        else:
            self.show("/hint needs a text: what should the answer have been like?")

    def new(self, _: str) -> None:
        self.server.end_session(self.session)
        self.begin()
        self.show(f"new session {self.session}")

    def switch(self, value: str) -> None:
        if value not in ("on", "off"):
            self.show("/train on or /train off")
            return
        self.train = value == "on"
        self.show("your turns are trained on" if self.train else "nothing you say is stored or trained on")

    def status(self, _: str) -> None:
        found = self.server.status()
        self.show(f"version {found['weight_version']}, turns {found['turns']}, samples {found['samples']}")
        if found["dropped"]:
            self.show(f"dropped {found['dropped']}")

    def help(self, _: str) -> None:
        self.show(HELP)

    def _word(self, **word: str) -> None:
        if not self.last:
            self.show("say something first")
            return
        self.show({"judging": "thank you: the answer is judged by your word", "waiting": "thank you: your word counts "
                   "as soon as you go on", "recorded": "noted, but this answer is past training"}
                  [self.server.feedback(self.last, **word)])  # fmt: skip


def converse(chat: Chat, lines: Iterable[str]) -> None:
    """Runs until the input ends or the user leaves. Prints errors and continues."""
    for line in lines:
        try:
            if not chat.line(line):
                return
        except ChatError as error:
            chat.write("\n")
            chat.show(f"error: {error}")


def typed() -> Iterable[str]:
    """Lines of a person at a terminal."""
    while True:
        try:
            yield input("> ")
        except (EOFError, KeyboardInterrupt):
            return


def report(chat: Chat, stop: threading.Event) -> None:
    """Shows news of the turns while the person thinks."""
    while not stop.wait(LOOK_SECONDS):
        for line in chat.watch.news():
            chat.show(f"\r\033[K  · {line}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0; 1 when the server cannot be used; 2 for a wrong command line."""
    parser = argparse.ArgumentParser(
        prog="python -m openclaw.chat", description="Talk to the model, and watch it learn."
    )
    declare.add_flags(parser, ChatSettings)
    try:
        settings = declare.load(ChatSettings, vars(parser.parse_args(argv)))
    except ConfigError as error:
        parser.error(str(error))
    server = Server(settings.url, settings.api_key)
    try:
        if settings.watch:
            watch(server, settings.admin_key)
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
    """A whole chat. Raises ChatError when the server is not there at its start."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    model = server.models()[0]["id"]
    chat = Chat(server, model, console.print, lambda piece: console.print(piece, end=""))
    version = server.status()["weight_version"]
    console.print(f"{model} at {server.url}, version {version}, session {chat.session}")
    if sys.stdin.isatty():
        at_terminal(chat)
    else:
        converse(chat, sys.stdin)
        wait_for_turns(chat, wait)


def watch(server: Server, admin_key: str | None) -> None:
    """Tells of all turns as they change. Raises ChatError when the server is not there, and KeyboardInterrupt."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    turns = AllTurns(lambda: server.newest_turns(admin_key))
    console.print(
        f"watching the turns at {server.url}, version {server.status()['weight_version']}; Ctrl-C ends it"
    )
    while True:
        for line in turns.news():
            console.print(line)
        time.sleep(LOOK_SECONDS)


def at_terminal(chat: Chat) -> None:
    chat.show("/help lists the commands")
    stop = threading.Event()
    thread = threading.Thread(target=report, args=(chat, stop), daemon=True)
    thread.start()
    try:
        converse(chat, typed())
    finally:
        stop.set()
        thread.join()


def wait_for_turns(chat: Chat, seconds: float) -> None:
    """Prints changes of the turns until all have ended or the time is over."""
    end = time.monotonic() + seconds
    while True:
        for line in chat.watch.news():
            chat.show(f"  · {line}")
        if not chat.watch.open or time.monotonic() >= end:
            return
        time.sleep(min(LOOK_SECONDS, seconds))


if __name__ == "__main__":
    sys.exit(main())
