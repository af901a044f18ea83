"""Tests real small server processes under a ServerManager."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import httpx
import psutil
import pytest

from claw_base.files import write_json
from claw_base.run_folder import records
from claw_base.run_folder.records import ProcessRecord
from slime.errors import ConfigError, EngineError
from slime.processes import control, servers
from slime.processes.servers import START_ATTEMPTS, ServerManager, ServerSpec, restart_delay
from slime.processes.watch import UNHEALTHY_AFTER, ServerWatch, check_health
from tests import FAKES

FAKE_SERVER = FAKES / "small_server.py"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServerManager]:
    manager = ServerManager(tmp_path)
    yield manager
    manager.stop_all()


def spec_for(manager: ServerManager, name: str = "engine-0", *arguments: str) -> ServerSpec:
    port = manager.choose_port(name)
    command = [sys.executable, str(FAKE_SERVER), str(port), *arguments]
    return ServerSpec(name, "engine", command, f"http://127.0.0.1:{port}", start_timeout=20)


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def test_a_started_server_has_its_own_session_a_record_and_a_log(
    manager: ServerManager, tmp_path: Path
) -> None:
    record = manager.ensure(spec_for(manager))
    assert os.getsid(record.pid) != os.getsid(0)
    assert psutil.Process(record.pid).ppid() != os.getpid()
    assert records.read_record(tmp_path, "engine-0") == record
    assert record.create_time == pytest.approx(psutil.Process(record.pid).create_time(), abs=1)
    assert "serving" in control.log_path(tmp_path, "engine-0").read_text()


def test_a_new_manager_adopts_what_the_last_one_started(manager: ServerManager, tmp_path: Path) -> None:
    first = manager.ensure(spec_for(manager))
    successor = ServerManager(tmp_path)
    assert successor.ensure(spec_for(successor)).pid == first.pid


def test_a_server_with_another_command_is_replaced_and_a_surplus_one_is_stopped(
    manager: ServerManager,
) -> None:
    first = manager.ensure(spec_for(manager))
    extra = manager.ensure(spec_for(manager, "judge-1"))
    manager.start_all([spec_for(manager, "engine-0", "--new")])
    [now] = manager.processes()
    assert now.pid != first.pid and now.url == first.url
    assert not first.alive() and not extra.alive()


def test_a_killed_server_restarts_on_the_same_port(manager: ServerManager) -> None:
    record = manager.ensure(spec_for(manager))
    watch = ServerWatch(manager)
    watch.start()
    os.kill(record.pid, signal.SIGKILL)
    eventually(lambda: [p.pid for p in manager.processes() if p.pid != record.pid])
    eventually(lambda: servers.healthy(manager.servers["engine-0"].spec))
    assert manager.servers["engine-0"].restarts == 1
    watch.close()


def test_an_unresponsive_server_is_replaced(manager: ServerManager) -> None:
    spec = replace(spec_for(manager), health_timeout=1.0)
    record = manager.ensure(spec)
    httpx.get(f"{spec.url}/break", trust_env=False)
    for _ in range(UNHEALTHY_AFTER):
        check_health(manager.servers[spec.name])
    assert not record.alive()
    manager.restart_dead()
    eventually(lambda: servers.healthy(spec))


SUPERVISOR = """
import contextlib, json, os, psutil, socket, sys, threading, time
from pathlib import Path
from claw_base.hotswap.socket_supervisor import SocketSupervisor
from claw_base.hotswap.takeover import TakeoverId, take_over

port, run_dir = int(sys.argv[1]), Path(sys.argv[2])

def end():
    while run_dir.exists() and not (run_dir / "ended").exists():  # the folder of a test that passed is removed
        time.sleep(0.05)
    os._exit(0)

def work(channel):
    threading.Thread(target=end, daemon=True).start()
    while not (run_dir / "may-serve").exists():
        time.sleep(0.05)
    while True:
        with contextlib.suppress(OSError), supervisor.listener.accept()[0] as connection:  # a health request has left
            connection.sendall(b"served")

def note(part, pid):
    if pid is not None and part == "keeper":
        record = {"name": "gateway.keeper", "role": "keeper", "pid": pid, "url": None, "command": [], "started_at": 0.0}
        created = psutil.Process(pid).create_time()
        path = run_dir / "processes" / "gateway.keeper.json"
        path.write_text(json.dumps(record | {"create_time": created}))

takeover_id = TakeoverId(f"test-{port}", "same", run_dir / "processes")
listener, workers = take_over(takeover_id, lambda: socket.create_server(("127.0.0.1", port)))
supervisor = SocketSupervisor(listener, work, takeover_id=takeover_id, note=note)
for worker in workers:
    supervisor.adopt(worker)
sys.exit(supervisor.run())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a socket supervisor needs Linux")
def test_connections_wait_while_a_supervisor_without_a_serving_worker_is_replaced(
    manager: ServerManager, tmp_path: Path
) -> None:
    port = manager.choose_port("gateway")
    command = [sys.executable, "-c", SUPERVISOR, str(port), str(tmp_path)]
    spec = ServerSpec("gateway", "gateway", command, f"http://127.0.0.1:{port}", health_timeout=0.1)
    manager.adopt_or_launch(spec)
    watched = manager.servers["gateway"]
    eventually(lambda: records.has_worker(tmp_path, "gateway"))
    first, watched.ready = watched.record, True
    for _ in range(UNHEALTHY_AFTER):
        check_health(watched, tmp_path)
    assert not first.alive()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as waiting:
        manager.restart_dead()
        assert watched.record.pid != first.pid
        (tmp_path / "may-serve").touch()
        assert waiting.recv(6) == b"served"
    manager.stop_all()
    (tmp_path / "ended").touch()  # its workers ignore signals, so they would stay


def test_restarts_back_off_while_a_server_never_becomes_ready() -> None:
    assert [restart_delay(failures) for failures in (0, 1, 2, 3, 20)] == [0.0, 0.5, 1.0, 2.0, 10.0]


def test_a_server_repeatedly_killed_in_service_restarts_without_delay(
    manager: ServerManager,
) -> None:
    spec = spec_for(manager)
    for _ in range(4):
        os.kill(manager.ensure(spec).pid, signal.SIGKILL)
        manager.restart_dead()
        assert manager.wait_ready(spec).alive()
    assert manager.servers[spec.name].failed_starts == 0


def test_stop_all_spares_processes_that_only_share_a_pid_with_a_record(
    manager: ServerManager, tmp_path: Path
) -> None:
    record = manager.ensure(spec_for(manager))
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        stale = ProcessRecord("engine-9", "engine", bystander.pid, 1.0, None, [], 0.0)
        write_json(records.record_path(tmp_path, "engine-9"), asdict(stale))
        manager.stop_all()
        assert not record.alive()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="births are told on Linux")
def test_a_server_is_recognised_after_the_clock_was_set(
    manager: ServerManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_for(manager)
    record = manager.ensure(spec)
    right = psutil._pslinux.boot_time
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: right() + 3600)
    assert abs(psutil.Process(record.pid).create_time() - record.create_time) > 3000
    assert record.alive() and ServerManager(tmp_path).ensure(spec).pid == record.pid
    assert not replace(record, birth=f"{record.birth}1").alive()


def test_stopping_a_server_stops_its_children(manager: ServerManager) -> None:
    sleep = "import time; time.sleep(60)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{sleep}']); {sleep}"
    record = manager.ensure(ServerSpec("parent", "engine", [sys.executable, "-c", code]))
    eventually(lambda: psutil.Process(record.pid).children())
    [child] = psutil.Process(record.pid).children()
    manager.stop("parent")
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_an_occupied_port_is_rejected_before_any_server_starts(manager: ServerManager) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        taken = ServerSpec("gateway", "gateway", ["unused"], f"http://127.0.0.1:{port}")
        with pytest.raises(ConfigError, match=f"port {port}, needed by the gateway"):
            manager.start_all([spec_for(manager), taken])
    assert manager.processes() == []


def test_a_server_that_crashes_at_start_is_reported_with_its_last_output(manager: ServerManager) -> None:
    broken = ServerSpec(
        "engine-0",
        "engine",
        [sys.executable, "-c", "raise SystemExit('no such model: x')"],
        "http://127.0.0.1:1",
    )
    with pytest.raises(ConfigError, match="no such model: x"):
        manager.ensure(broken)


def test_a_server_killed_during_its_start_is_not_treated_as_broken(
    manager: ServerManager,
) -> None:
    slow = replace(spec_for(manager), command=[sys.executable, "-c", "import time; time.sleep(60)"])
    manager.adopt_or_launch(slow)
    watched = manager.servers[slow.name]
    for _ in range(START_ATTEMPTS):
        os.kill(watched.record.pid, signal.SIGKILL)
        eventually(lambda: not watched.record.alive())
        manager.restart_dead()
        assert watched.record.alive()
    assert watched.failed_starts == 0


def test_a_command_that_does_not_exist_is_an_error_at_once(manager: ServerManager) -> None:
    with pytest.raises(EngineError, match="could not be started"):
        manager.ensure(ServerSpec("engine-0", "engine", ["/no/such/program"]))
