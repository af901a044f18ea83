"""Tests persistent shells: the output of a call, and the handling of a command that does not end."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slime.sandbox import Limits, Shells, Shown, Workspace

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
SECONDS = 60.0


@pytest.fixture(scope="module")
def shells() -> Iterator[Shells]:
    with Workspace() as workspace, Shells(workspace, Limits(output_chars=400)) as found:
        yield found


def shown_until(first: Shown, view: Callable[[], Shown], done: Callable[[str, Shown], bool]) -> str:
    """Returns all output of a call and of the later views, up to the first sufficient one."""
    text, found, until = first.output, first, time.monotonic() + SECONDS
    while not done(text, found):
        assert time.monotonic() < until, f"not shown in time: {text!r}"
        time.sleep(0.02)
        found = view()
        text += found.output
    return text


def test_a_shell_keeps_its_folder_variables_and_functions(shells: Shells) -> None:
    assert shells.execute("a", "mkdir -p d; cd d; X=5; f() { echo f$1; }", SECONDS) == Shown(exit_code=0)
    assert shells.execute("a", "pwd; f $X; false", SECONDS) == Shown("/workspace/d\nf5\n", exit_code=1)
    assert shells.execute("b", "pwd; echo $X", SECONDS).output == "/workspace\n\n"
    assert shells.execute("a", "if true", SECONDS).exit_code == 2
    assert shells.execute("a", "cat <<E\nline\nE", SECONDS).output == "line\n"


def test_a_slow_command_continues_and_a_view_shows_only_new_output(shells: Shells) -> None:
    found = shells.execute("c", "echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 3", 1.0)
    assert found == Shown("one\n", running=True) and found.text() == "one\n[still running]"
    assert "still runs in the shell 'c'" in str(shells.execute("c", "ls", SECONDS).error)
    assert shells.view("c") == Shown(running=True)
    shells.execute("d", "touch go", SECONDS)
    text = shown_until(Shown(), lambda: shells.view("c"), lambda _, shown: shown.ended)
    assert text == "two\n"
    assert "no shell 'c'" in str(shells.view("c").error)
    assert shells.execute("c", "echo new", SECONDS).output == "new\n"


def test_a_program_gets_input_and_interrupts(shells: Shells) -> None:
    assert shells.execute("py", "python3 -i -q", block=False).running
    view = lambda: shells.view("py")  # noqa: E731
    shown_until(shells.write("py", "print(6 * 7)"), view, lambda text, _: "42" in text)
    shown_until(shells.write("py", "\x04"), view, lambda _, shown: not shown.running)
    shells.execute("cat", "cat", block=False)
    view = lambda: shells.view("cat")  # noqa: E731
    shown_until(shells.write("cat", "back"), view, lambda text, _: "back" in text)
    shown_until(shells.write("cat", "\x03"), view, lambda _, shown: shown.exit_code == 130)
    assert shells.execute("cat", "echo on", SECONDS).output == "on\n"


def test_signals_work_in_a_shell_of_a_background_run() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a script does it for `command &`
    try:
        with Shells() as shells:
            ignored = shells.execute("a", "grep SigIgn /proc/self/status", SECONDS).output.split()[1]
    finally:
        signal.signal(signal.SIGINT, before)
    assert int(ignored, 16) & 0b110 == 0, "neither SIGINT nor SIGQUIT"


def test_killing_a_shell_ends_its_programs(shells: Shells) -> None:
    shells.execute("k", "sleep 1234 & sleep 1235", block=False)
    shells.kill("k")
    gone = "for i in {1..400}; do pgrep -x sleep >/dev/null || exit 7; sleep 0.05; done"
    assert shells.execute("l", gone, SECONDS).exit_code == 7


def test_long_output_is_shortened_in_the_middle_and_a_flood_does_not_block(shells: Shells) -> None:
    found = shells.execute("o", "echo begin; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end", SECONDS)
    assert found.output.startswith("begin\nxxx") and found.output.endswith("x\nend\n")
    assert "3000011 bytes in all" in found.output and len(found.output) < 500
    shells.execute("flood", "yes", block=False)
    assert shells.execute("o", "echo still here", SECONDS).output == "still here\n"
    shells.kill("flood")


def test_the_number_of_open_shells_is_limited() -> None:
    with Shells() as shells:
        found = [shells.execute(str(number), ":", SECONDS) for number in range(17)]
        assert [shown.error for shown in found[:16]] == [None] * 16 and "no more" in str(found[16].error)
        shells.kill("0")
        assert shells.execute("16", "echo x", SECONDS).output == "x\n"


def test_a_command_that_ends_its_sandbox_loses_the_shells_but_no_files() -> None:
    with Workspace() as workspace, Shells(workspace) as shells:
        shells.execute("a", "echo kept > file", SECONDS)
        found = shells.execute("a", "kill -9 -1; sleep 60", SECONDS)
        assert found.restarted and "all shells were ended; files in /workspace are kept" in str(found.error)
        assert shells.execute("a", "cat file", SECONDS).output == "kept\n"


def test_a_waiting_call_ends_when_the_shells_are_closed() -> None:
    shells = Shells()
    shells.execute("a", ":", SECONDS)
    assert shells.box is not None
    root = shells.box.process.pid
    found: list[Shown] = []
    waiting = threading.Thread(target=lambda: found.append(shells.execute("a", "sleep 600", 600.0)))
    waiting.start()
    shells.close()
    waiting.join(SECONDS)
    shells.close()
    assert not waiting.is_alive() and not Path(f"/proc/{root}").exists()


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"number": 1, "output": "", "running": false, "code": 1e999, "ended": false}',
        b'{"number": 1, "output": "", "running": false, "code": "x", "ended": false}',
        b'{"number": 1}',
        b"[]",
        b"",
    ],
)
def test_code_that_writes_to_the_workers_channel_ends_the_shells_and_raises_nothing(
    shells: Shells, line: bytes
) -> None:
    """Code in the sandbox of an ordinary user can write there, since the channel belongs to the same user."""
    shells.number = 1
    assert shells._shown(line) is None


def test_text_that_is_no_unicode_is_replaced(shells: Shells) -> None:
    shells.number = 1
    line = b'{"number": 1, "output": "\\ud800", "running": false, "code": 0, "ended": false}'
    shown = shells._shown(line)
    assert shown is not None and shown.output == "?"
