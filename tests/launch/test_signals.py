"""A launch script that continues after its driver passes on signals to the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import ROOT

DRIVER = """
import pathlib, signal, sys, time
def end(number, frame):
    time.sleep(0.3)  # it saves first
    pathlib.Path(sys.argv[1] + ".ended").write_text(signal.Signals(number).name)
    sys.exit(int(sys.argv[2]))
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, end)
pathlib.Path(sys.argv[1]).touch()
time.sleep(60)
"""
SCRIPT = """
set -euo pipefail -f
ROOT=$1; source "$ROOT/launch/launch.sh"
run_driver() { exec "$3" -c "$4" "$5" "$6"; }
passing_signals run_driver run driver "${@:2}"
echo went on
"""


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [("SIGTERM", 0, "went on\n"), ("SIGHUP", 0, "went on\n"), ("SIGTERM", 3, "")],
)
def test_the_script_stops_its_driver_and_waits_for_it(
    number: str, status: int, said: str, tmp_path: Path
) -> None:
    begun, ended = tmp_path / "driver", tmp_path / "driver.ended"
    words = ["bash", "-c", SCRIPT, "script", str(ROOT), sys.executable, DRIVER, str(begun), str(status)]
    # bash cannot trap signals that were ignored at its start, like SIGHUP under nohup
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        script = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        until = time.monotonic() + 30
        while not begun.exists() and time.monotonic() < until:
            time.sleep(0.02)
        script.send_signal(signal.Signals[number])
        out, _ = script.communicate(timeout=30)
        assert (script.returncode, out) == (status, said)
        assert ended.read_text() == "SIGTERM", "the script waits for what its driver does last"
    finally:
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)
