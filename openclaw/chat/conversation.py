"""One person's conversation with the model: messages, ratings of answers, and the commands that begin with /."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from openclaw.chat.client import ChatError, Server
from openclaw.chat.turn_status import TurnWatch

HELP = """\
/good           the last answer was good        /bad            it was bad
/hint TEXT      what it should have done: becomes a hint for the model
/new            a new session                   /train on|off   whether your turns are stored and trained on
/status         the server's counts             /quit           leave (so does Ctrl-D)
Ctrl-C stops an answer."""

SAID = {
    "judging": "thank you: the judge now uses your rating of the answer",
    "waiting": "thank you: your hint is used when you send the next message",
    "recorded": "stored without effect: you rated it so before, or the answer is not trained on any more",
}


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
        """Begins a new session: no earlier message is sent again."""
        self.session = uuid.uuid4().hex[:12]
        self.messages: list[dict[str, str]] = []
        self.last = ""

    def line(self, text: str) -> bool:
        """Handles one input: a message of one or more lines, or a command; returns False when the person leaves.
        Raises ChatError, and KeyboardInterrupt from an answer that is stopped."""
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
        self.last = answer.completion_id if self.train else ""
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
        """Handles `/train off`, after which nothing is stored, and `/train on`, which begins a new session: a client
        sends the whole history with each message, so the private part would otherwise be stored."""
        if value not in ("on", "off"):
            self.show("/train on or /train off")
            return
        on = value == "on"
        if on == self.train:
            self.show(f"training on your turns is {value} already")
            return
        self.train, self.last = on, ""
        if on:
            self.begin()
            self.show(f"your turns are trained on; new session {self.session}, without your private messages")
        else:
            self.show("your messages are not stored or trained on, until /train on")

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

    def _word(self, **word: str) -> None:
        if not self.train:
            self.show("this conversation is private: no rating of it is stored")
        elif not self.last:
            self.show("there is no answer to rate yet")
        else:
            self.show(SAID[self.server.feedback(self.last, **word)])


def converse(chat: Chat, lines: Iterable[str]) -> None:
    """Runs until the input ends or the user leaves. Raises KeyboardInterrupt."""
    for line in lines:
        if not hear(chat, line):
            return


def hear(chat: Chat, text: str) -> bool:
    """Handles one input; prints errors of the server. Returns False when the person leaves. Raises
    KeyboardInterrupt."""
    try:
        return chat.line(text)
    except ChatError as error:
        chat.write("\n")
        chat.show(f"error: {error}")
        return True


def _counted(counts: dict[str, Any]) -> str:
    return ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items())
