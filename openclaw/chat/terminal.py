"""The chat in a terminal: line editing with history, multi-line pastes as one message, status reports between answers."""

from __future__ import annotations

import threading

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.patch_stdout import patch_stdout

from openclaw.chat.conversation import Chat, handle

POLL_SECONDS = 1.0
COMMANDS = ["/good", "/bad", "/hint", "/new", "/train on", "/train off", "/status", "/help", "/quit"]


class Terminal:
    """A chat in a terminal.

    A lock keeps status reports out of running answers; they appear above the input line.
    """

    def __init__(self, chat: Chat, session: PromptSession[str]) -> None:
        self._chat, self._session = chat, session
        self._printing = threading.Lock()
        self._stop = threading.Event()

    def run(self) -> None:
        """Runs until the user leaves."""
        self._chat.show("/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves")
        thread = threading.Thread(target=self._report, daemon=True)
        thread.start()
        try:
            while (text := self._read_message()) is not None:
                with self._printing:
                    if not self._handle(text):
                        return
        finally:
            self._stop.set()
            thread.join()

    def _handle(self, text: str) -> bool:
        try:
            return handle(self._chat, text)
        except KeyboardInterrupt:
            self._chat.write("\n")
            self._chat.show("stopped: this answer is not added to the conversation and is not trained on")
            return True

    def _read_message(self) -> str | None:
        """Returns the next message; None if the user leaves.

        A pasted paragraph is one message. Ctrl-C clears the line.
        """
        while True:
            try:
                with patch_stdout():
                    return self._session.prompt("> ", bottom_toolbar=self._toolbar)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return None

    def _toolbar(self) -> str:
        chat = self._chat
        storage = "stored and trained on" if chat.train else "PRIVATE: not stored"
        return f" {chat.model} | session {chat.session} | {storage} | {chat.watch.open} turns in progress "

    def _report(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            news = self._chat.watch.news()
            with self._printing:
                for line in news:
                    print(f"  · {line}", flush=True)


def terminal(chat: Chat) -> Terminal:
    """Returns a chat in this process's terminal."""
    words = WordCompleter(COMMANDS, sentence=True)
    return Terminal(chat, PromptSession(completer=words, complete_while_typing=False))
