"""The chat in a terminal, with input through a pipe instead of a keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from openclaw.chat.client import StreamedAnswer
from openclaw.chat.conversation import Chat
from openclaw.chat.terminal import Terminal

UP, LEFT, CTRL_C, CTRL_D = "\x1b[A", "\x1b[D", "\x03", "\x04"
PASTED = "\x1b[200~{}\x1b[201~"


class FakeServer:
    """Answers `ok` in two pieces; messages in `stopped_at` are interrupted after the first piece."""

    def __init__(self, stopped_at: str = "") -> None:
        self.stopped_at = stopped_at
        self.heard: list[list[dict[str, str]]] = []

    def chat(self, messages: list[dict[str, str]], *_: object, **__: object) -> Iterator[StreamedAnswer]:
        self.heard.append(messages)
        yield StreamedAnswer(f"turn-{len(self.heard)}", "o")
        if messages[-1]["content"] == self.stopped_at:
            raise KeyboardInterrupt
        yield StreamedAnswer(f"turn-{len(self.heard)}", "ok")

    def turn(self, completion_id: str) -> dict[str, Any] | None:
        return None


@pytest.fixture
def keyboard() -> Iterator[PipeInput]:
    with create_pipe_input() as made:
        yield made


def talk(keyboard: PipeInput, typed: str, server: FakeServer | None = None) -> tuple[list[str], list[str]]:
    """Returns the last message of each request, and the displayed output."""
    server = server or FakeServer()
    shown: list[str] = []
    chat = Chat(server, "tiny", shown.append, shown.append)  # type: ignore[arg-type]
    keyboard.send_text(typed + CTRL_D)
    Terminal(chat, PromptSession(input=keyboard, output=DummyOutput())).run()
    return [messages[-1]["content"] for messages in server.heard], shown


def test_arrow_keys_edit_the_line_and_are_not_sent(keyboard: PipeInput) -> None:
    assert talk(keyboard, f"{UP}helo{LEFT}l\r")[0] == ["hello"]


def test_a_pasted_paragraph_is_one_message(keyboard: PipeInput) -> None:
    assert talk(keyboard, PASTED.format("one\ntwo\nthree") + "\r")[0] == ["one\ntwo\nthree"]


def test_ctrl_c_clears_the_line_without_exiting(keyboard: PipeInput) -> None:
    assert talk(keyboard, f"half a thou{CTRL_C}whole\r")[0] == ["whole"]


def test_ctrl_c_stops_an_answer_and_removes_it_from_the_history(keyboard: PipeInput) -> None:
    server = FakeServer(stopped_at="long story")
    heard, shown = talk(keyboard, "long story\rshort one\r", server)
    assert heard == ["long story", "short one"] and len(server.heard[1]) == 1
    assert any(line.startswith("stopped: ") for line in shown)


def test_quit_exits(keyboard: PipeInput) -> None:
    assert talk(keyboard, "hi\r/quit\rnever\r")[0] == ["hi"]
