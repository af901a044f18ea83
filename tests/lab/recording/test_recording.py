"""The recording of the chat: rendering of a terminal, and the generated picture."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from claw_lab.recording.__main__ import Player
from claw_lab.recording.cast import Cast, read
from claw_lab.recording.picture import frames, svg
from claw_lab.recording.screen import Screen
from tests import ROOT

IMAGES = ROOT / "instructions" / "images"


def shown(printed: str, width: int = 10, height: int = 3) -> list[str]:
    screen = Screen(width, height)
    screen.feed(printed)
    return ["".join(cell.text for cell in row).rstrip() for row in screen.rows()]


@pytest.mark.parametrize(
    ("printed", "rows"),
    [
        ("one\r\ntwo", ["one", "two", ""]),
        ("a\r\nb\r\nc\r\nd", ["b", "c", "d"]),
        ("abcdefghijkl", ["abcdefghij", "kl", ""]),
        ("abcdef\x1b[3D\x1b[K", ["abc", "", ""]),
        ("abc\r\x1b[2CX", ["abX", "", ""]),
        ("ab\r\ncd\x1b[A\r\x1b[J", ["", "", ""]),
        ("ab\x1b[2J\x1b[HX", ["X", "", ""]),
        ("\x1b[?25l\x1b]0;title\x07x\x1b(By", ["xy", "", ""]),
    ],
)
def test_a_screen_is_rendered_like_in_a_terminal(printed: str, rows: list[str]) -> None:
    assert shown(printed) == rows


def test_bold_and_reverse_are_kept_with_their_text() -> None:
    screen = Screen(10, 1)
    screen.feed("\x1b[1mb\x1b[0;7mr\x1b[0mx")
    assert [(cell.bold, cell.reverse) for cell in screen.rows()[0][:3]] == [
        (True, False),
        (False, True),
        (False, False),
    ]


def test_a_silence_is_shortened_and_each_frame_differs_from_the_one_before() -> None:
    cast = Cast(10, 2, "t", idle=1.0, events=[(0.0, "a"), (0.01, "b"), (9.0, "\x1b[m"), (9.5, "c")])
    assert [round(at, 2) for at, _ in frames(cast)] == [0.0, 1.51]


def test_the_picture_is_svg_without_a_script_and_shows_every_frame_once() -> None:
    cast = Cast(10, 2, "a & b", events=[(0.0, "<a>\r\n"), (1.0, "b")])
    picture = svg(cast)
    ElementTree.fromstring(picture)
    assert "<script" not in picture and "&lt;a&gt;" in picture and "a &amp; b" in picture
    assert picture.count("translateX") == 2


def test_a_terminal_program_is_recorded_and_receives_typed_input(tmp_path: Path) -> None:
    cast = Cast(40, 5, "t")
    player = Player(
        [sys.executable, "-c", "print('got', input('? '), __import__('sys').stdin.isatty())"], cast
    )
    try:
        while not any("?" in text for _, text in cast.events):
            assert player.listen(0.1, 20)
        player.type("hé")
        while player.listen(0.5, 30):
            pass
    finally:
        player.end()
    cast.write(tmp_path / "x.cast")
    assert "got hé True" in "".join(text for _, text in read(tmp_path / "x.cast").events)


def test_the_picture_of_the_readme_is_drawn_from_its_recording() -> None:
    cast = read(IMAGES / "chat.cast")
    picture = (IMAGES / "chat.svg").read_text("utf-8")
    assert picture == svg(cast)
    assert len(picture.encode()) < 200_000
    printed = "".join(text for _, text in cast.events)
    assert re.search(r"v\d+ has learned from it", printed)
    assert not re.search(r"/(tmp|root|home|work)/", printed)
