"""Tests what code in a sandbox can do, what it cannot, and its error messages."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.errors import ConfigError
from slime.sandbox import Limits, PythonSession, require_sandbox
from slime.sandbox import command as command_module
from slime.sandbox.box import Box

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
SECONDS = 60.0  # for a call that ends by itself
SMALL = Limits(memory=256 << 20, processes=24, file_bytes=1 << 20, disk_bytes=4 << 20, output_chars=400)


@pytest.fixture(scope="module")
def session() -> Iterator[PythonSession]:
    with PythonSession(SMALL) as found:
        yield found


def test_without_bubblewrap_one_error_line_names_the_missing_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_module.shutil, "which", lambda name, **more: None)
    with pytest.raises(ConfigError, match=r"needs bwrap, prlimit.*not run without one; install it") as found:
        command_module.programs()
    assert "\n" not in str(found.value)


def test_a_normal_user_needs_no_setpriv_and_root_drops_its_privileges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        command_module.shutil,
        "which",
        lambda name, **more: None if name == "setpriv" and os.getuid() else f"/usr/bin/{name}",
    )
    for user, first in ((1000, "/usr/bin/bwrap"), (0, "/usr/bin/setpriv")):
        monkeypatch.setattr(command_module.os, "getuid", lambda user=user: user)
        words = command_module.launcher((3, 4, 5), ["true"], Limits())
        assert words[0] == first and words[words.index("/usr/bin/bwrap") + 1 :][:4] == [
            "--args",
            "3",
            "--seccomp",
            "4",
        ]


@needs_bubblewrap
def test_lines_that_arrive_together_are_read_one_by_one() -> None:
    with Box(["/usr/bin/printf", r"one\ntwo\nhalf"]) as box:
        assert box.exit_code(SECONDS) == 0
        assert [box.read_line(SECONDS, 100) for _ in range(3)] == [b"one", b"two", None]


def test_limits_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="limit processes"):
        Limits(processes=0)


@needs_bubblewrap
def test_an_interpreter_keeps_definitions_and_prints_the_last_expression(
    session: PythonSession,
) -> None:
    assert session.run("a = 6\ndef f(x):\n    return x * a", SECONDS).text() == ""
    assert session.run("print('seven:')\nf(7)", SECONDS).text() == "seven:\n42"
    assert session.run("'''two\nlines'''", SECONDS).text() == repr("two\nlines")


@needs_bubblewrap
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("kept = 5\n1/0", "line 2: ZeroDivisionError: division by zero"),
        ("x = 1\nprint(x", "line 2: SyntaxError: '(' was never closed"),
        ("def f():\n    return y\nf()", "line 2: NameError: name 'y' is not defined"),
        ("raise SystemExit", ""),
    ],
)
def test_an_exception_is_one_line_with_its_position_and_the_session_continues(
    session: PythonSession, code: str, error: str
) -> None:
    found = session.run(code, SECONDS)
    assert (found.error or "", found.restarted) == (error, False)


@needs_bubblewrap
def test_a_sandbox_has_its_own_processes_and_no_host_paths_or_variables(
    session: PythonSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "do not tell")
    with PythonSession(SMALL) as fresh:
        assert "SECRET_KEY" not in fresh.run("import os; dict(os.environ)", SECONDS).output
    listed = session.run("import os\n[p for p in os.listdir('/proc') if p.isdigit()]", SECONDS)
    assert listed.text() == "['1', '2']"
    assert session.run("'-packages' in open('/proc/1/cmdline').read()", SECONDS).text() == "False"
    keep = "[l for l in open('/proc/self/status') if l.startswith(('Uid', 'CapEff', 'NoNew'))]"
    kernel = session.run(keep, SECONDS).text()
    assert "Uid:\\t1000\\t1000" in kernel and "NoNewPrivs:\\t1" in kernel
    assert "CapEff:\\t0000000000000000" in kernel


@needs_bubblewrap
def test_services_of_the_host_are_unreachable(session: PythonSession) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        name = f"box-{os.getpid()}"
        abstract.bind(f"\0{name}")
        abstract.listen()
        port = server.getsockname()[1]
        over_tcp = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert "ConnectionRefused" in str(session.run(over_tcp, SECONDS).error)
        over_unix = f"socket.socket(socket.AF_UNIX).connect('\\0{name}')"
        assert "ConnectionRefused" in str(session.run(over_unix, SECONDS).error)


@needs_bubblewrap
def test_processes_started_by_a_call_end_with_it(session: PythonSession) -> None:
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.fork() or time.sleep(600)\n    os._exit(0)"
    assert session.run(daemon, SECONDS).error is None
    seen = session.run("[p for p in os.listdir('/proc') if p.isdigit()]", SECONDS)
    assert seen.text() == "['1', '2']"


def parents() -> set[int]:
    """Returns the ids of all processes on this machine that have a child."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = path.read_bytes()
            found.add(int(text[text.rindex(b")") :].split()[2]))
    return found


@needs_bubblewrap
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("while True: pass", "longer than 0.5 s"),
        ("import os; os.system('sleep 600')", "longer than 0.5 s"),
        ("import signal, time\nsignal.signal(15, signal.SIG_IGN); time.sleep(600)", "longer than 0.5 s"),
    ],
)
def test_a_hanging_call_and_its_children_end_at_the_limit(code: str, error: str) -> None:
    with PythonSession(SMALL) as session:
        session.run("kept = 1", SECONDS)
        assert session.box is not None
        root = session.box.process.pid
        found = session.run(code, 0.5)
        assert error in str(found.error) and "variables are gone" in str(found.error)
        assert root not in parents() and not Path(f"/proc/{root}").exists()
        assert "NameError" in str(session.run("kept", SECONDS).error)


@needs_bubblewrap
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import os; os._exit(3)", "ended the interpreter (exit code 3)"),
        ("import ctypes; ctypes.string_at(0)", "segmentation fault"),
        (
            "import os\nfor d in range(3, 60):\n    try: os.write(d, b'nonsense\\n')\n    except OSError: pass",
            "channel",
        ),
        ("import os\nos.closerange(3, 60)\nos.write(1, b'')", "ended the interpreter"),
    ],
)
def test_code_that_crashes_its_interpreter_gets_an_error_and_a_new_one(code: str, error: str) -> None:
    with PythonSession(SMALL) as session:
        found = session.run(code, SECONDS)
        assert found.restarted and error in str(found.error)
        assert session.run("6 * 7", SECONDS).text() == "42"


@needs_bubblewrap
def test_processor_time_is_limited_in_addition_to_elapsed_time() -> None:
    with PythonSession(Limits(cpu_seconds=1)) as session:
        found = session.run("while True: pass", 300.0)
        assert "processor time" in str(found.error) or "killed" in str(found.error)


@needs_bubblewrap
def test_long_output_keeps_its_start_and_its_end(session: PythonSession) -> None:
    text = session.run("print('begin'); print('x' * 9000); print('end')", SECONDS).output
    assert text.startswith("begin\n") and text.endswith("end\n") and "9011 bytes in all" in text
    assert len(text) < 2 * SMALL.output_chars


@needs_bubblewrap
def test_closing_leaves_no_process() -> None:
    require_sandbox()
    session = PythonSession(SMALL)
    session.run("import subprocess; child = subprocess.Popen(['sleep', '600'])", SECONDS)
    assert session.box is not None
    root = session.box.process.pid
    session.close()
    session.close()
    until = time.monotonic() + 30
    while Path(f"/proc/{root}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not Path(f"/proc/{root}").exists()


def test_a_call_ends_with_an_error_if_its_session_is_closed() -> None:
    with PythonSession() as session:
        session.run("x = 1")
        assert session.box is not None and session.box.process.stdout is not None
        session.box.process.stdout.close()  # as closing does from another thread
        found = session.run("x")
        assert found.restarted and "variables are gone" in found.text()
        assert session.run("2").text() == "2"
