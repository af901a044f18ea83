"""Tests the supervisor with scripted drivers that write real records."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from claw_base.run_folder import records
from slime.processes import control
from slime.processes.saving import DRIVER_GRACE, FILE
from slime.processes.servers import ServerManager, ServerSpec
from slime.processes.started import forget_start, note_started
from slime.processes.supervisor import (
    ECHO,
    LOCK,
    Supervisor,
    only_supervisor,
    stop_everything,
)
from tests import FAKES

FAKE_SERVER = FAKES / "small_server.py"

# Writes a line at every life, then does what the next of its arguments says: an exit status, "wait", or "saveN", which
# saves for N seconds after TERM.
DRIVER = """
import os, signal, subprocess, sys, time
from pathlib import Path
from slime.processes.saving import record_saving
def save(*_):
    record_saving(Path(sys.argv[1]).parent, float(os.environ.get("SAVES_FOR", 120)))
    time.sleep(float(deed[4:]))
    Path(sys.argv[1]).with_name("saved").touch()
    os._exit(143)
lives = open(sys.argv[1], "a+"); lives.seek(0); life = len(lives.readlines())
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
deed = sys.argv[2 + life]
if deed.startswith("save"): signal.signal(signal.SIGTERM, save)
print(os.getpid(), child.pid, file=lives, flush=True)
if deed == "wait" or deed.startswith("save"): time.sleep(600)
os._exit(int(deed))
"""


class Supervised:
    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.lives_file = run_dir / "lives"
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self, *deeds: str, flags: Sequence[str] = (), stdout: int | None = None, stderr: int | None = None
    ) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "slime.processes.supervisor",
            "--run-dir",
            str(self.run_dir),
            *flags,
            "--",
        ]
        command += [sys.executable, "-c", DRIVER, str(self.lives_file), *deeds]
        self.process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
        return self.process

    def lives(self) -> list[list[int]]:
        if not self.lives_file.exists():
            return []
        return [[int(pid) for pid in line.split()] for line in self.lives_file.read_text().splitlines()]


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    supervised = Supervised(tmp_path)
    yield supervised
    if supervised.process is not None:
        supervised.process.kill()
        supervised.process.wait()
    control.kill_marked(tmp_path)
    ServerManager(tmp_path).stop_all()


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def start_server(run_dir: Path) -> records.ProcessRecord:
    manager = ServerManager(run_dir)
    port = manager.choose_port("gateway")
    command = [sys.executable, str(FAKE_SERVER), str(port)]
    return manager.ensure(ServerSpec("gateway", "gateway", command, f"http://127.0.0.1:{port}"))


def test_a_crashed_driver_is_restarted_and_its_processes_are_ended(supervised: Supervised) -> None:
    assert supervised.start("1", "-9", "0").wait(20) == 0
    assert len(supervised.lives()) == 3
    eventually(lambda: all(gone(pid) for life in supervised.lives() for pid in life))


def test_servers_survive_a_killed_driver_and_end_with_the_supervisor(
    supervised: Supervised, tmp_path: Path
) -> None:
    server = start_server(tmp_path)
    supervisor = supervised.start("wait", "wait")
    eventually(lambda: len(supervised.lives()) == 1)
    os.kill(supervised.lives()[0][0], signal.SIGKILL)
    eventually(lambda: len(supervised.lives()) == 2)
    assert server.alive()
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(20) == 0
    assert not server.alive()
    eventually(lambda: all(gone(pid) for life in supervised.lives() for pid in life))


def test_a_configuration_error_is_not_retried(supervised: Supervised) -> None:
    assert supervised.start("2", "0").wait(20) == 2
    assert len(supervised.lives()) == 1


@pytest.mark.parametrize("begun", [False, True])
def test_a_rejected_start_leaves_no_files_unless_a_run_has_started(
    begun: bool, supervised: Supervised, tmp_path: Path
) -> None:
    if begun:
        (tmp_path / "arguments.json").write_text("{}")
    assert supervised.start("2").wait(30) == 2
    left = {path.name for path in tmp_path.iterdir()} - {"lives", "arguments.json"}
    assert left == ({LOCK} if begun else set())


def test_a_rejected_start_keeps_existing_files(supervised: Supervised, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "training.log").write_text("of an earlier start")
    assert supervised.start("2").wait(30) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lives", "logs"]
    assert (tmp_path / "logs" / "training.log").read_text() == "of an earlier start"


def test_restarts_are_limited(supervised: Supervised) -> None:
    assert supervised.start("1", "1", "1", "1", flags=["--max-restarts", "1"]).wait(20) == 1
    assert len(supervised.lives()) == 2


@pytest.mark.parametrize(
    ("lives", "status", "pauses"),
    [
        ([1] * 9, 1, [1, 2, 4, 8]),
        ([1, 1, 1, 1, -9, 1, 1, 0], 0, [1, 2, 4, 8, 1, 1, 2]),
        ([1, 1, 1, 1, "started", 1, 1, 1, 1, 0], 0, [1, 2, 4, 8, 1, 1, 2, 4, 8]),
    ],
)
def test_a_driver_that_repeatedly_fails_to_start_is_not_restarted(
    tmp_path: Path, lives: list[int | str], status: int, pauses: list[float]
) -> None:
    supervisor, left, waited = Supervisor(tmp_path, ["driver"]), iter(lives), []

    def life() -> int:
        forget_start(tmp_path)
        how = next(left)
        if isinstance(how, str):
            note_started(tmp_path)
            return 1
        return how

    supervisor.run_driver = life  # type: ignore[method-assign]
    supervisor.pause = waited.append  # type: ignore[method-assign]
    assert supervisor.run_drivers() == status
    assert waited == pauses


def test_a_run_folder_has_one_supervisor(supervised: Supervised, tmp_path: Path) -> None:
    first = supervised.start("wait")
    eventually(lambda: len(supervised.lives()) == 1)
    command = [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(tmp_path), "--", "true"]
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 2
    assert f"in use by the supervisor with pid {first.pid}" in second.stderr


def test_a_killed_supervisor_is_replaced_together_with_its_driver(supervised: Supervised) -> None:
    first = supervised.start("wait", "0")
    eventually(lambda: len(supervised.lives()) == 1)
    first.kill()
    first.wait()
    assert supervised.start("wait", "0").wait(20) == 0
    assert len(supervised.lives()) == 2
    eventually(lambda: gone(supervised.lives()[0][0]))


def test_a_changed_cluster_is_awaited_while_servers_continue(supervised: Supervised, tmp_path: Path) -> None:
    server = start_server(tmp_path)
    supervisor = supervised.start(
        "1", "3", "3", "wait", flags=["--max-restarts", "1", "--cluster-retry", "0.2"]
    )
    eventually(lambda: len(supervised.lives()) == 4)
    assert server.alive()
    supervisor.terminate()
    assert supervisor.wait(20) == 0


def test_a_lacking_cluster_at_the_first_start_is_a_configuration_error(
    supervised: Supervised,
) -> None:
    assert supervised.start("3", "0").wait(20) == 2
    assert len(supervised.lives()) == 1


SLOW_TO_END = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(2), exit()))
while True: time.sleep(0.1)
"""


def test_servers_end_even_if_the_supervisor_is_killed_while_stopping_them(
    supervised: Supervised, tmp_path: Path
) -> None:
    server = ServerManager(tmp_path).ensure(
        ServerSpec("judge-0", "judge", [sys.executable, "-c", SLOW_TO_END])
    )
    supervisor = supervised.start("wait")
    eventually(lambda: len(supervised.lives()) == 1)
    supervisor.terminate()
    eventually(lambda: psutil.Process(supervisor.pid).children() and gone(supervised.lives()[0][0]))
    supervisor.kill()
    assert server.alive()
    eventually(lambda: not server.alive())


def test_a_driver_that_announces_it_has_time_to_save_while_servers_continue(
    supervised: Supervised, tmp_path: Path
) -> None:
    server = start_server(tmp_path)
    supervisor = supervised.start(f"save{DRIVER_GRACE + 1}")
    eventually(lambda: len(supervised.lives()) == 1)
    for number in (
        signal.SIGTERM,
        signal.SIGTERM,
        signal.SIGINT,
    ):  # of a process, of its group, of a script's trap
        supervisor.send_signal(number)
        time.sleep(0.3)
    eventually(lambda: (tmp_path / FILE).exists())
    assert server.alive()
    assert supervisor.wait(30) == 0
    assert (tmp_path / "saved").exists() and not (tmp_path / FILE).exists() and not server.alive()


def test_a_second_signal_ends_a_saving_driver(supervised: Supervised, tmp_path: Path) -> None:
    supervisor = supervised.start("save600")
    eventually(lambda: len(supervised.lives()) == 1)
    supervisor.send_signal(signal.SIGINT)
    eventually(lambda: (tmp_path / FILE).exists())
    time.sleep(ECHO)
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(20) == 0
    assert not (tmp_path / "saved").exists() and not (tmp_path / FILE).exists()
    eventually(lambda: gone(supervised.lives()[0][0]))


def test_a_driver_that_saves_longer_than_announced_is_killed(
    supervised: Supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAVES_FOR", "0.5")
    supervisor = supervised.start("save60", stderr=subprocess.PIPE)
    eventually(lambda: len(supervised.lives()) == 1)
    supervisor.terminate()
    _, said = supervisor.communicate(timeout=20)
    assert supervisor.returncode == 0 and b"the driver did not end within 5.5 s: it is killed" in said
    assert not (tmp_path / "saved").exists() and not (tmp_path / FILE).exists()


def test_after_the_supervisor_is_killed_the_driver_still_saves_and_servers_end(
    supervised: Supervised, tmp_path: Path
) -> None:
    server = start_server(tmp_path)
    supervisor = supervised.start("save2")
    eventually(lambda: len(supervised.lives()) == 1)
    supervisor.terminate()
    eventually(lambda: (tmp_path / FILE).exists() and psutil.Process(supervisor.pid).children())
    time.sleep(0.7)  # as a scheduler does a moment later
    supervisor.kill()
    eventually(lambda: not server.alive(), 20)
    assert (tmp_path / "saved").exists()


def test_everything_is_stopped_if_the_output_pipe_is_closed(supervised: Supervised, tmp_path: Path) -> None:
    server = start_server(tmp_path)
    reader, writer = os.pipe()
    supervisor = supervised.start("wait", stderr=writer)
    os.close(writer)
    eventually(lambda: len(supervised.lives()) == 1)
    os.close(reader)  # a `tee` that Ctrl-C ended first
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(20) == 0
    assert not server.alive()


def test_the_terminal_cursor_is_restored_after_a_driver_is_stopped(supervised: Supervised) -> None:
    terminal, end = pty.openpty()
    supervisor = supervised.start("wait", stdout=end)
    os.close(end)
    eventually(lambda: len(supervised.lives()) == 1)
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(20) == 0
    assert b"\x1b[?25h" in os.read(terminal, 1000), "a progress bar hides it"
    os.close(terminal)


def test_a_run_without_a_supervisor_can_be_stopped(supervised: Supervised, tmp_path: Path) -> None:
    server = start_server(tmp_path)
    supervisor = supervised.start("wait")
    eventually(lambda: len(supervised.lives()) == 1)
    stop = [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(tmp_path), "--stop"]
    refused = subprocess.run(stop, capture_output=True, text=True)
    assert refused.returncode == 2
    assert f"in use by the supervisor with pid {supervisor.pid}; stop that run first" in refused.stderr
    supervisor.kill()
    supervisor.wait()
    assert server.alive()
    assert subprocess.run(stop).returncode == 0
    assert not server.alive()
    eventually(lambda: all(gone(pid) for pid in supervised.lives()[0]))


def test_no_process_records_remain_after_a_stop(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    left = [control.spawn(tmp_path, role, role, sleep, None, os.environ) for role in ("trainer", "gateway")]
    os.kill(control.spawn(tmp_path, "driver", "driver", sleep, None, os.environ).pid, signal.SIGKILL)
    stop_everything(tmp_path)
    assert records.read_records(tmp_path) == [] and not any(record.alive() for record in left)


def test_a_new_run_folder_is_private_to_its_user(tmp_path: Path) -> None:
    with only_supervisor(tmp_path / "run"):
        assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700


def test_files_of_a_run_are_private_even_in_a_folder_readable_by_others(
    supervised: Supervised, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    assert supervised.start("0").wait(20) == 0
    assert supervised.lives_file.stat().st_mode & 0o077 == 0
    assert (tmp_path / LOCK).stat().st_mode & 0o077 == 0
