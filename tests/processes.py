"""Runs the collected tests in several processes: forks of the process that has collected them.

The processes of pytest-xdist each collect all tests, which takes longer than many folders of tests. Forks share the
modules that are already imported.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import struct
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, cast

import pytest
from _pytest.config import create_terminal_writer

from tests import parts

NUMBER = struct.Struct("H")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs the tests with `--processes` of at least 2; otherwise pytest runs them."""
    option = session.config.option
    if option.processes < 2 or option.collectonly or session.testsfailed or not session.items:
        return None
    _Forks(session).run(option.processes)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    return True


@dataclass
class _Fork:
    """A process, with the tests of its queue that have not ended."""

    pid: int
    number: int
    left: list[pytest.Item] = field(default_factory=list)
    done: bool = False


class _Forks:
    """Distributes the queues of tests: each process takes the next one when it has finished its own."""

    def __init__(self, session: pytest.Session) -> None:
        self.session, self.config = session, session.config
        self.queues: list[list[pytest.Item]] = list(parts.queues(session.items).values())
        self.forks: dict[Connection, _Fork] = {}
        self.folder = self.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        self.next_queue, write = os.pipe()
        os.write(write, b"".join(NUMBER.pack(at) for at in range(len(self.queues))))
        os.close(write)

    def run(self, count: int) -> None:
        reporter: Any = self.config.pluginmanager.getplugin("terminalreporter")
        reporter.showfspath = False  # names of files from several processes would alternate
        try:
            for number in range(count):
                self._start(number, [])
            while self.forks:
                for ready in wait(list(self.forks)):
                    self._receive(cast(Connection, ready))
                if self.session.shouldfail:
                    self._withdraw_queues()
        finally:
            for connection, fork in self.forks.items():
                connection.close()  # else a fork may wait until a report is read
                os.kill(fork.pid, signal.SIGINT)
                os.waitpid(fork.pid, 0)

    def _withdraw_queues(self) -> None:
        """Leaves each fork the queue that it has begun."""
        while os.read(self.next_queue, NUMBER.size * len(self.queues)):
            pass

    def _start(self, number: int, first: list[pytest.Item]) -> None:
        receive, send = Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            _work(self, number, send, first)
        send.close()
        self.forks[receive] = _Fork(pid, number, first)

    def _receive(self, connection: Connection) -> None:
        fork = self.forks[connection]
        try:
            name, values = connection.recv()
        except EOFError:
            del self.forks[connection]
            self._ended(fork, os.waitpid(fork.pid, 0)[1])
            return
        if name == "queue":
            fork.left = list(self.queues[values])
        elif name == "done":
            fork.done = True
        elif name == "error":
            raise RuntimeError(f"a test process ended with an error\n{values}")
        elif name == "pytest_warning_recorded":
            self.config.hook.pytest_warning_recorded.call_historic(kwargs=values)
        else:
            if name == "pytest_runtest_logreport":
                hook = self.config.hook.pytest_report_from_serializable
                values["report"] = hook(config=self.config, data=values["report"])
            elif name == "pytest_runtest_logfinish":
                del fork.left[0]
            getattr(self.config.hook, name)(**values)

    def _ended(self, fork: _Fork, status: int) -> None:
        """If a test ended its process, reports this test as failed; a new process continues with the next one."""
        if fork.done:
            return
        if not fork.left:
            raise RuntimeError(f"a test process ended between two tests with wait status {status}")
        item, *others = fork.left
        text = f"the process of this test ended with wait status {status}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self.config.hook.pytest_runtest_logreport(report=report)
        self._start(fork.number, others)


class _Sender:
    """Sends the reports of a fork to the first process."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self.config, self.connection = config, connection

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self.connection.send(("pytest_runtest_logstart", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self.connection.send(("pytest_runtest_logfinish", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.connection.send(("pytest_runtest_logreport", {"report": data}))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        warning_message.message = str(warning_message.message)
        warning_message.source = None
        values = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self.connection.send(("pytest_warning_recorded", values))


def _work(forks: _Forks, number: int, connection: Connection, first: list[pytest.Item]) -> None:
    """Runs queues of tests in a fork until none is left; never returns."""
    session = forks.session
    try:
        _separate(forks, number, connection)
        try:
            for items in _taken(forks, connection, first):
                for item, following in zip(items, [*items[1:], session], strict=True):
                    # the session as the next test: fixtures of a session stay, and all others are closed
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    if session.shouldfail:
                        break
        finally:
            session._setupstate.teardown_exact(None)
        connection.send(("done", None))
    except BaseException:
        with suppress(OSError):
            connection.send(("error", traceback.format_exc()))
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(0)


def _separate(forks: _Forks, number: int, connection: Connection) -> None:
    """Gives a fork its own temporary folder and its own captured output; prints nothing."""
    config = forks.config
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = forks.folder / f"process{number}"
    factory._basetemp.mkdir(exist_ok=True)
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    reporter._tw = create_terminal_writer(config, io.StringIO())
    config.pluginmanager.register(_Sender(config, connection))


def _taken(forks: _Forks, connection: Connection, first: list[pytest.Item]) -> Iterator[list[pytest.Item]]:
    """Yields the tests that a process left when it ended, then one queue after another."""
    if first:
        yield first
    while not forks.session.shouldfail and (taken := os.read(forks.next_queue, NUMBER.size)):
        (at,) = NUMBER.unpack(taken)
        connection.send(("queue", at))
        yield forks.queues[at]
