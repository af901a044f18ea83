"""Emulates a terminal: text, and the control sequences of line editors and plain programs.

Of ECMA-48: cursor movement (A B C D G H), erasure (J K), bold and reverse (m); other sequences are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SEQUENCE = re.compile(
    r"\x1b\[([0-9;?]*)([@-~])|\x1b\].*?(?:\x07|\x1b\\)|\x1b[()][0-9A-B]|\x1b[=>78M]", re.DOTALL
)


@dataclass(frozen=True)
class Cell:
    """One character cell of the screen."""

    text: str = " "
    bold: bool = False
    reverse: bool = False


Row = tuple[Cell, ...]


class Screen:
    """A screen of `width` x `height` cells; text below the last row scrolls."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.x = self.y = 0
        self.pen = Cell()
        self.cells = [[Cell()] * width for _ in range(height)]

    def rows(self) -> tuple[Row, ...]:
        return tuple(tuple(row) for row in self.cells)

    def feed(self, text: str) -> None:
        """Processes output of the program; control sequences must be complete."""
        at = 0
        for match in SEQUENCE.finditer(text):
            self._write(text[at : match.start()])
            if match[2]:
                self._act(match[2], match[1])
            at = match.end()
        self._write(text[at:])

    def _write(self, text: str) -> None:
        for char in text:
            if char == "\n":
                self._line_feed()
            elif char == "\r":
                self.x = 0
            elif char == "\b":
                self.x = max(0, self.x - 1)
            elif char.isprintable():
                if self.x >= self.width:
                    self.x = 0
                    self._line_feed()
                self.cells[self.y][self.x] = Cell(char, self.pen.bold, self.pen.reverse)
                self.x += 1

    def _line_feed(self) -> None:
        if self.y == self.height - 1:
            self.cells = [*self.cells[1:], [Cell()] * self.width]
        else:
            self.y += 1

    def _act(self, letter: str, parameters: str) -> None:
        if parameters.startswith("?"):
            return
        numbers = [int(one or 0) for one in parameters.split(";")]
        count = max(1, numbers[0])
        if letter == "A":
            self.y = max(0, self.y - count)
        elif letter == "B":
            self.y = min(self.height - 1, self.y + count)
        elif letter == "C":
            self.x = min(self.width - 1, self.x + count)
        elif letter == "D":
            self.x = max(0, self.x - count)
        elif letter == "G":
            self.x = min(self.width, count) - 1
        elif letter == "H":
            self.y, self.x = min(self.height, count) - 1, min(self.width, max(1, numbers[-1])) - 1
        elif letter in "JK":
            self._erase(letter, numbers[0])
        elif letter == "m":
            self._style(numbers)

    def _erase(self, letter: str, part: int) -> None:
        """Erases a part of the row (K) or of the screen (J): 0 after the cursor, 1 before it, 2 all."""
        row = self.cells[self.y]
        begin, end = {0: (self.x, self.width), 1: (0, self.x + 1)}.get(part, (0, self.width))
        self.cells[self.y] = [Cell() if begin <= x < end else cell for x, cell in enumerate(row)]
        if letter == "J":
            for y in range(self.height):
                if (part == 0 and y > self.y) or (part == 1 and y < self.y) or part == 2:
                    self.cells[y] = [Cell()] * self.width

    def _style(self, numbers: list[int]) -> None:
        bold, reverse = self.pen.bold, self.pen.reverse
        for number in numbers:
            bold = {0: False, 1: True, 22: False}.get(number, bold)
            reverse = {0: False, 7: True, 27: False}.get(number, reverse)
        self.pen = Cell(" ", bold, reverse)
