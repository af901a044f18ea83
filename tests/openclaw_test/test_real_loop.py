"""A loop started by a benchmark ends with the benchmark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests import ROOT

BENCHMARK = """
import sys, time
from pathlib import Path
from openclaw_test.loop.real_loop import Loop
loop = Loop(Path(sys.argv[1]), script=Path(sys.argv[2]))
try:
    loop.start()
    print(loop._process.pid, flush=True)
    time.sleep(600)
finally:
    print("ended with", loop.stop(), flush=True)
"""


def test_sigterm_also_ends_the_loop(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "run.sh"
    script.parent.mkdir()
    script.write_text("exec sleep 600\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("openclaw-test", "."))}
    arguments = [sys.executable, "-c", BENCHMARK, str(tmp_path / "run"), str(script)]
    with subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, text=True) as benchmark:
        assert benchmark.stdout is not None
        loop = int(benchmark.stdout.readline())
        benchmark.send_signal(signal.SIGTERM)
        assert benchmark.stdout.readline() == f"ended with {-signal.SIGTERM}\n"
        assert benchmark.wait(60) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{loop}").exists()
