"""Records the chat in the terminal: bash lab/run.sh recording --url http://127.0.0.1:30000 --output FOLDER

A scripted person types into `python -m openclaw.chat`, which runs in its own terminal, connected to a server that
learns; `FOLDER/chat.cast` (asciinema play chat.cast) and `FOLDER/chat.svg` are written. Linux and macOS.
"""

from __future__ import annotations

import argparse
import codecs
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl
from pathlib import Path

from claw_lab.recording.cast import Cast, read
from claw_lab.recording.picture import svg

WIDTH, HEIGHT = 100, 22
TYPING = 0.03  # seconds a character
QUIET, LONGEST = 1.8, 60.0  # seconds without output after which the recording continues; and the maximum
LIST = re.compile(r"^\s*\d\. ", re.MULTILINE)
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
WISH, THANKS = "No list please, write plain sentences.", "Thank you, that is what I wanted."
PROBLEMS = (
    "Tom has 12 apples and buys 7 more. How many apples does Tom have?",
    "Lily has 30 pens and gives away 8. How many pens are left?",
    "Ben has 9 cards and gets 14 more. How many cards does Ben have?",
    "Mia has 25 coins and finds 6 more. How many coins does Mia have?",
    "Sam has 40 stamps and loses 12. How many stamps are left?",
    "Eva has 16 books and buys 5 more. How many books does Eva have?",
    "Max has 50 beads and gives away 20. How many beads are left?",
)
ENOUGH = 2  # conversations whose first answer pleased at once


class Player:
    """A program in its own terminal, and its output."""

    def __init__(self, command: Sequence[str], cast: Cast) -> None:
        self.cast, self.began = cast, time.monotonic()
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            # Queries of the cursor position need an answer, which this terminal does not give.
            os.environ.update(TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1", COLUMNS=str(WIDTH), LINES=str(HEIGHT))
            os.execvp(command[0], list(command))
        ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))

    def listen(self, quiet: float, longest: float) -> bool:
        """Reads output until there was none for `quiet` seconds; returns False if the program has exited."""
        end = time.monotonic() + longest
        while time.monotonic() < end:
            if not select.select([self.terminal], [], [], quiet)[0]:
                return True
            try:
                data = os.read(self.terminal, 65536)
            except OSError:  # Linux: the other side is closed
                return False
            if not data:
                return False
            self.cast.events.append((time.monotonic() - self.began, self.decode(data)))
        return True

    def type(self, text: str) -> None:
        for char in text:
            os.write(self.terminal, char.encode())
            self.listen(TYPING, TYPING)
        os.write(self.terminal, b"\r")

    def end(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def record(url: str) -> Cast:
    """Records a chat with the server at `url`: one conversation for each problem, until the first answers please."""
    cast = Cast(WIDTH, HEIGHT, "A chat in the terminal: the model learns from the next message")
    player = Player([sys.executable, "-m", "openclaw.chat", "--url", url], cast)

    def say(text: str) -> str:
        """Types a text; returns the output after it, without control sequences."""
        player.type(text)
        seen = len(cast.events)
        player.listen(QUIET, LONGEST)
        return CONTROL.sub("", "".join(printed for _, printed in cast.events[seen:]))

    pleased = 0
    try:
        player.listen(QUIET, LONGEST)
        for problem in PROBLEMS:
            if LIST.search(say(problem)):
                say(WISH)
            else:
                pleased += 1
            say(THANKS)
            if pleased == ENOUGH:
                break
            say("/new")
        say("/quit")
    finally:
        player.end()
    return cast


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bash lab/run.sh recording", description=__doc__)
    parser.add_argument(
        "--url", help="server to record; without it chat.svg is drawn from the existing chat.cast"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of both files")
    options = parser.parse_args(argv)
    file = options.output / "chat.cast"
    if options.url:
        record(options.url).write(file)
    (options.output / "chat.svg").write_text(svg(read(file)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
