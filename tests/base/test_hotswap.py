"""A socket supervisor with small workers: the port stays open whichever process is killed."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from claw_base.hotswap.takeover import TakeoverId, Waiting, socket_folder
from claw_base.ports import free_port
from tests import ROOT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a supervisor needs Linux")
PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from claw_base.hotswap.socket_supervisor import SocketSupervisor
from claw_base.hotswap.takeover import TakeoverId, take_over
from claw_base.ports import listen

port, build_s = int(sys.argv[1]), float(sys.argv[3])
name, _, kind = sys.argv[2].partition("/")
takeover_id = TakeoverId(name, kind, Path(sys.argv[4])) if name else None

async def answer(reader, writer):
    answering.add(asyncio.current_task())
    words = (await reader.readline()).split()
    if words and words[0] == b"wait":
        await asyncio.sleep(1.0)
    writer.write(b"%d\\n" % os.getpid())
    await writer.drain()
    writer.close()
    answering.discard(asyncio.current_task())

answering = set()

async def life(channel):
    await asyncio.sleep(build_s)
    channel.built()
    await channel.wait_for_turn(supervisor.listener)
    server = await asyncio.start_server(answer, sock=supervisor.listener.dup())
    channel.serving()
    await channel.wait_for_finish(supervisor.listener)
    server.close()
    await asyncio.sleep(0.2)  # what was accepted just now
    for _ in range(10):  # on a busy machine the time passes before the loop has begun an accepted connection
        await asyncio.sleep(0)
    while answering:
        await asyncio.sleep(0.01)

def work(channel):
    if build_s < 0:
        channel.refuse("error: this can never work")
        return 2
    asyncio.run(life(channel))
    return 0

def open_port():
    return listen("127.0.0.1", port)

listener, reclaimed = take_over(takeover_id, open_port) if takeover_id else (open_port(), [])
supervisor = SocketSupervisor(listener, work, takeover_id=takeover_id)
for worker in reclaimed:
    supervisor.adopt(worker)
sys.exit(supervisor.run())
"""


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A socket folder whose name is too long for a socket address."""
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    monkeypatch.setenv("SOCKET_FOLDER", str(folder))
    return folder


@contextmanager
def a_supervisor(port: int, takeover_id: str = "", build_s: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        str(port),
        takeover_id,
        str(build_s),
        os.environ["SOCKET_FOLDER"],
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "base")}
    supervisor = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    try:
        yield supervisor
    finally:
        if supervisor.poll() is None:
            supervisor.terminate()
            supervisor.wait(20)


def ask(port: int, line: bytes = b"hello\n") -> int:
    """Connects once; returns the pid of the process that answered. Raises OSError or ValueError if there is no
    answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(line)
        return int(connection.makefile().readline())


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Returns whether a process has ended; a zombie counts, because its adoptive parent here may never collect the
    exit status."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def answers(port: int) -> bool:
    try:
        return ask(port) > 0
    except (OSError, ValueError):
        return False


def test_connections_wait_and_none_is_refused_while_the_worker_is_killed_repeatedly(port: int) -> None:
    refused: list[OSError] = []
    served: set[int] = set()
    over = threading.Event()

    def knock() -> None:
        while not over.is_set():
            try:
                served.add(ask(port))
            except ConnectionRefusedError as error:
                refused.append(error)
            except (OSError, ValueError):
                pass  # the answering process was killed meanwhile

    with a_supervisor(port):
        until(lambda: answers(port))
        knocking = [threading.Thread(target=knock) for _ in range(3)]
        for thread in knocking:
            thread.start()
        for _ in range(5):
            os.kill(ask(port), signal.SIGKILL)
            until(lambda: answers(port))
        over.set()
        for thread in knocking:
            thread.join()
    assert refused == [] and len(served) >= 5


def test_a_ready_spare_worker_takes_over_at_once(port: int) -> None:
    with a_supervisor(port, build_s=1.0) as supervisor:
        until(lambda: answers(port))
        first = ask(port)
        until(lambda: len(psutil.Process(supervisor.pid).children()) == 2)
        time.sleep(2.0)
        os.kill(first, signal.SIGKILL)
        began = time.monotonic()
        assert ask(port) != first
        assert time.monotonic() - began < 0.9  # starting a new worker takes longer


def workers_of(supervisor: subprocess.Popen[str], count: int = 3) -> list[psutil.Process]:
    """Returns the children of a supervisor: the serving worker, the spare worker and the fd keeper."""
    until(lambda: len(psutil.Process(supervisor.pid).children()) == count)
    return psutil.Process(supervisor.pid).children()


def test_a_killed_supervisor_leaves_its_worker_serving_and_the_next_one_gets_the_socket(port: int) -> None:
    with a_supervisor(port, f"test-{port}/old") as killed:
        until(lambda: answers(port))
        first = ask(port)
        killed.kill()
        killed.wait(30)
        assert ask(port) == first
        with a_supervisor(port, f"test-{port}/new") as supervisor:
            until(lambda: ask(port) != first)
            until(lambda: has_ended(first))
            assert psutil.Process(ask(port)).ppid() == supervisor.pid
        until(lambda: not answers(port))


def test_workers_of_a_killed_supervisor_continue_under_the_next_one(port: int) -> None:
    takeover_id = f"test-{port}/same"
    with a_supervisor(port, takeover_id) as killed:
        until(lambda: answers(port))
        first, workers = ask(port), workers_of(killed)
        time.sleep(0.8)  # the spare worker has started
        killed.kill()
        with a_supervisor(port, takeover_id) as supervisor:
            time.sleep(0.5)
            # only the fd keeper has ended
            assert ask(port) == first and sum(has_ended(worker.pid) for worker in workers) <= 1
            os.kill(first, signal.SIGKILL)
            assert ask(port) in {worker.pid for worker in workers} - {first}
            workers_of(supervisor, 2)  # its fd keeper, and a new spare worker
        until(lambda: all(has_ended(worker.pid) for worker in workers))


def test_no_connection_is_refused_when_a_supervisor_and_its_worker_are_killed_together(port: int) -> None:
    takeover_id = f"test-{port}/same"
    with a_supervisor(port, takeover_id) as killed:
        until(lambda: answers(port))
        first, workers = ask(port), workers_of(killed)
        time.sleep(0.8)  # the spare worker has started
        killed.kill()
        os.kill(first, signal.SIGKILL)
        assert ask(port) in {worker.pid for worker in workers} - {first}
        with a_supervisor(port, takeover_id) as supervisor:
            workers_of(supervisor, 2)  # its fd keeper, and a new spare worker
            assert ask(port) in {worker.pid for worker in workers}
        until(lambda: not answers(port))


def test_connections_wait_for_the_next_supervisor_when_one_and_all_its_workers_are_killed(port: int) -> None:
    takeover_id = f"test-{port}/same"
    with a_supervisor(port, takeover_id) as killed:
        until(lambda: answers(port))
        serving, spare = (worker.pid for worker in workers_of(killed) if worker.num_fds() > 6)
        killed.kill()
        for pid in (serving, spare):
            os.kill(pid, signal.SIGKILL)
        got: list[int] = []
        waiting = threading.Thread(target=lambda: got.append(ask(port)))
        waiting.start()
        with a_supervisor(port, takeover_id) as supervisor:
            waiting.join(10)
            assert got == [ask(port)] and got[0] in {worker.pid for worker in workers_of(supervisor)}


def test_the_next_supervisor_finds_a_spare_worker_that_was_starting_when_its_supervisor_was_killed(
    port: int,
) -> None:
    takeover_id = f"test-{port}/same"
    with a_supervisor(port, takeover_id, build_s=1.0) as killed:
        until(lambda: answers(port))
        workers = workers_of(killed)
        killed.kill()
        with a_supervisor(port, takeover_id, build_s=1.0) as supervisor:
            until(lambda: answers(port))
            time.sleep(3.0)
            serving = ask(port)
        until(lambda: all(has_ended(worker.pid) for worker in workers) and has_ended(supervisor.pid))
        assert serving in {worker.pid for worker in workers} and not answers(port)


def test_a_started_answer_is_completed_after_another_supervisor_takes_over(port: int) -> None:
    with a_supervisor(port, f"test-{port}/old") as killed:
        until(lambda: answers(port))
        first = ask(port)
        killed.kill()
        got: list[int] = []
        waiting = threading.Thread(target=lambda: got.append(ask(port, b"wait\n")))
        waiting.start()
        with a_supervisor(port, f"test-{port}/new"):
            until(lambda: ask(port) != first)
            waiting.join(10)
    assert got == [first]


def test_workers_end_with_a_supervisor_without_a_takeover_id(port: int) -> None:
    with a_supervisor(port) as supervisor:
        until(lambda: answers(port))
        until(lambda: len(psutil.Process(supervisor.pid).children()) == 2)
        workers = psutil.Process(supervisor.pid).children()
        supervisor.kill()
        assert psutil.wait_procs(workers, timeout=5)[1] == []


def test_a_first_worker_that_rejects_its_settings_ends_the_supervisor_with_its_reason(port: int) -> None:
    with a_supervisor(port, build_s=-1.0) as supervisor:
        assert supervisor.wait(20) == 2
        assert supervisor.stderr is not None and "error: this can never work" in supervisor.stderr.read()


def test_other_users_cannot_access_the_socket_folder(port: int, place: Path) -> None:
    takeover_id = f"test-{port}/same"
    with a_supervisor(port, takeover_id) as killed:
        until(lambda: answers(port))
        workers_of(killed)
        until(lambda: any(one.name.endswith(".keeper") for one in place.iterdir()))
        # a name bound first, as another user could do in the abstract name space
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
            squatter.bind(f"\0door/{os.getuid()}/test-{port}/keeper")
            squatter.listen(1)
            for worker in workers_of(killed):
                worker.kill()
            killed.kill()
            with a_supervisor(port, takeover_id):
                until(lambda: answers(port))
    assert list(place.iterdir()) == []


def test_two_processes_never_hold_the_same_name(place: Path) -> None:
    takeover_id = TakeoverId("0:1", "same", place)
    with Waiting(takeover_id, "keeper") as first, Waiting(takeover_id, "keeper") as second:
        assert first.bind() and not second.bind() and not second.bind()
        second.forget()
        assert (place / ".door-0:1.keeper").is_socket()
        assert stat.S_IMODE((place / ".door-0:1.keeper.lock").stat().st_mode) == 0o600
    with Waiting(takeover_id, "keeper") as third:
        assert third.bind()
    assert list(place.iterdir()) == []


def test_a_name_whose_files_were_removed_is_acquired_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takeover_id, flock = TakeoverId("0:1", "same", place), fcntl.flock

    def removed_first(lock: int, how: int) -> None:
        (place / ".door-0:1.keeper.lock").unlink()
        monkeypatch.undo()
        flock(lock, how)

    with Waiting(takeover_id, "keeper") as late:
        monkeypatch.setattr(fcntl, "flock", removed_first)
        assert not late.bind()
        with Waiting(takeover_id, "keeper") as other:
            assert other.bind() and not late.bind()
        assert late.bind()


def test_without_socket_support_another_folder_of_the_user_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert socket_folder(tmp_path / "processes") == tmp_path / "processes"
    assert list((tmp_path / "processes").iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = socket_folder(Path("/proc/self"))
    assert found.parent == tmp_path and stat.S_IMODE(found.stat().st_mode) == 0o700
