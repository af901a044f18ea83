"""Ray as a run starts it for itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

PROGRAM = """
import os, sys
from pathlib import Path
import psutil
from slime.ray.runtime import AGENTS, Runtime

runtime = Runtime(Path(sys.argv[1]), cpus=1, gpus=0)
family = psutil.Process().children(recursive=True)
print(*(process.pid for process in family if process.name() in AGENTS), flush=True)
runtime.end_agents()
os._exit(143)
"""


def test_rays_agents_do_not_outlive_a_driver_that_was_told_to_stop(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, timeout=120
    )
    agents = [psutil.Process(int(pid)) for pid in done.stdout.split() if psutil.pid_exists(int(pid))]
    assert len(done.stdout.split()) == 2, done.stderr
    _, left = psutil.wait_procs(agents, timeout=15.0)
    assert [process for process in left if process.status() != psutil.STATUS_ZOMBIE] == []
