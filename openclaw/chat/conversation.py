"""A conversation with the model: messages, ratings of answers, and the commands that begin with /."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from openclaw.chat.client import ChatError, Server
from openclaw.chat.turn_status import TurnWatch

HELP = """\
/good           rate the last answer as good    /bad            rate the last answer as bad
/hint TEXT      what the last answer should have been like: a hint for training
/new            start a new session             /train on|off   store and train on your turns, or not
/status         counts of the server            /quit           leave (or Ctrl-D)
Ctrl-C stops an answer."""

RATING_REPLIES = {
    "judging": "thank you: your rating replaces the judge's score of the answer",
    "waiting": "thank you: your hint is used when you send the next message",
    "recorded": "stored without effect: the rating is unchanged, or the answer is in training, trained or dropped",
}


class Chat:
    """A conversation of one user.

    Args:
        show: prints a line.
        write: prints a piece of an answer.
    """

    def __init__(
        self, server: Server, model: str, show: Callable[[str], None], write: Callable[[str], None]
    ) -> None:
        self.server, self.model, self.show, self.write = server, model, show, write
        self.watch = TurnWatch(server.turn)
        self.train = True
        self.begin()

    def begin(self) -> None:
        """Starts a new session with an empty history."""
        self.session = uuid.uuid4().hex[:12]
        self.messages: list[dict[str, str]] = []
        self.last = ""

    def line(self, text: str) -> bool:
        """Handles one input, a message or a command. Returns False if the user leaves.

        Raises ChatError, and KeyboardInterrupt while an answer is streamed.
        """
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
            self.show(f"unknown command {command}; /help lists all commands")
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
            raise ChatError("the server sent an empty stream")
        self.messages = [*history, {"role": "assistant", "content": answer.text}]
        self.last = answer.completion_id if self.train else ""
        if self.train:
            self.watch.add(answer.completion_id, f"answer {len(self.messages) // 2}")

    def good(self, _: str) -> None:
        self._rate(thumbs="up")

    def bad(self, _: str) -> None:
        self._rate(thumbs="down")

    def hint(self, text: str) -> None:
        if text:
            self._rate(text=text)
        else:
            self.show("/hint requires a text: what the answer should have been like")

    def new(self, _: str) -> None:
        self.server.end_session(self.session)
        self.begin()
        self.show(f"new session {self.session}")

    def switch(self, value: str) -> None:
        """Handles `/train on` and `/train off`.

        `/train on` starts a new session: each request contains the whole history, so private messages would be stored
        otherwise.
        """
        if value not in ("on", "off"):
            self.show("use /train on or /train off")
            return
        on = value == "on"
        if on == self.train:
            self.show(f"training on your turns is already {value}")
            return
        self.train, self.last = on, ""
        if on:
            self.begin()
            self.show(
                f"your turns are stored and trained on; new session {self.session}, without the private messages"
            )
        else:
            self.show("your messages are not stored or trained on until /train on")

    def status(self, _: str) -> None:
        status = self.server.status()
        self.show(f"version  {status['weight_version']}")
        for name, counts in (
            ("turns", status["turns"]),
            ("samples", status["samples"]),
            ("dropped", status["dropped"]),
            ("judge fails", status["judge_failures"]),
        ):
            if counts:
                self.show(f"{name:<8} {_counted(counts)}")

    def help(self, _: str) -> None:
        self.show(HELP)

    def _rate(self, **rating: str) -> None:
        if not self.train:
            self.show("training is off, so ratings are not stored; turn it on with /train on")
        elif not self.last:
            self.show("there is no answer to rate yet")
        else:
            self.show(RATING_REPLIES[self.server.feedback(self.last, **rating)])


def converse(chat: Chat, lines: Iterable[str]) -> None:
    """Handles lines until the input ends or the user leaves. Raises KeyboardInterrupt."""
    for line in lines:
        if not handle(chat, line):
            return


def handle(chat: Chat, text: str) -> bool:
    """Handles one input, and prints errors of the server. Returns False if the user leaves. Raises KeyboardInterrupt."""
    try:
        return chat.line(text)
    except ChatError as error:
        chat.write("\n")
        chat.show(f"error: {error}")
        return True


def _counted(counts: dict[str, Any]) -> str:
    return ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items())
