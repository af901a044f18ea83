"""Tests how a run starts Ray for itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from slime.errors import ClusterError
from slime.ray import runtime

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


def test_automatic_mode_does_not_join_another_users_ray_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def raylet(user: int) -> SimpleNamespace:
        return SimpleNamespace(info={"name": "raylet", "uids": SimpleNamespace(real=user)})

    monkeypatch.setattr(runtime, "_raylets", lambda: [raylet(os.getuid() + 1)])
    with pytest.raises(ClusterError, match="belongs to another user") as caught:
        runtime._reach("auto")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(runtime, "_raylets", lambda: [raylet(os.getuid() + 1), raylet(os.getuid())])
    runtime._reach("auto")
    monkeypatch.setattr(runtime, "_raylets", list)
    runtime._reach("auto")


def test_rays_agents_end_with_a_stopped_driver(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, timeout=120
    )
    agents = [psutil.Process(int(pid)) for pid in done.stdout.split() if psutil.pid_exists(int(pid))]
    assert len(done.stdout.split()) == 2, done.stderr
    _, left = psutil.wait_procs(agents, timeout=15.0)
    assert [process for process in left if process.status() != psutil.STATUS_ZOMBIE] == []
