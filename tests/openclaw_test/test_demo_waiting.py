"""Messages to a person who waits for the demo, and the waiting time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from claw_base.ports import free_port
from openclaw_test.loop import progress, readiness

FAILED = """INFO slime.ray: starting
ERROR slime.ray.driver: the driver failed
--> Ray did not start in its time
Traceback (most recent call last):
  File "run.py", line 1, in start
slime.errors.TrainError: Ray did not start within 60 s (--ray-start-timeout)
supervisor: the driver ended with status 1; starting it again (servers keep running)
"""
GAVE_UP = "supervisor: the driver died 21 times in 600 s: giving up\n"


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[str]]:
    """A process that runs until its input is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, text=True
    ) as process:
        yield process


def test_the_demo_waits_while_the_supervisor_retries_and_ends_in_one_line(
    tmp_path: Path, supervisor: subprocess.Popen[str]
) -> None:
    log, told = tmp_path / "driver.out", []
    log.write_text(FAILED)

    def say(line: str) -> None:
        told.append(line)
        with log.open("a") as more:
            more.write(GAVE_UP)
        supervisor.stdin.close()  # type: ignore[union-attr]

    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(SystemExit) as end:
        asyncio.run(readiness.wait_until_ready(url, 0.0, log, supervisor.pid, say))
    assert told[0] == "supervisor: the driver ended with status 1; starting it again (servers keep running)"
    assert str(end.value) == (
        f"error: {url} did not get ready: slime.errors.TrainError: Ray did not start within 60 s "
        f"(--ray-start-timeout) (more in {log})"
    )


def test_a_minute_of_waiting_is_logged(
    tmp_path: Path, supervisor: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "TOLD_AFTER_SECONDS", 0.0)
    told: list[str] = []

    def say(line: str) -> None:
        told.append(line)
        supervisor.stdin.close()  # type: ignore[union-attr]

    with pytest.raises(SystemExit, match="no answer came"):
        asyncio.run(
            readiness.wait_until_ready(
                f"http://127.0.0.1:{free_port()}", 0.0, tmp_path / "none", supervisor.pid, say
            )
        )
    assert told[0].startswith("still starting after ")


def test_a_server_started_by_another_process_is_awaited_for_a_time() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(SystemExit) as end:
        asyncio.run(readiness.wait_until_ready(url, 0.1, None, None))
    assert str(end.value) == f"error: {url} did not get ready: no answer came"


def test_a_rejected_start_prints_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "driver.out"
    log.write_text("error: --typo is not a flag\nsupervisor: stopping all processes of this run\n")
    assert readiness.reason(log) == "--typo is not a flag"


def test_a_long_measurement_reports_progress() -> None:
    answers, told = [40], []

    async def measure() -> None:
        done = asyncio.Event()

        def say(line: str) -> None:
            told.append(line)
            done.set()

        async with progress.shown(lambda: answers[0], 1400, say, every=0.01):
            answers[0] = 352
            await done.wait()

    asyncio.run(measure())
    assert told[0] == "  312 of 1400 answers"
