"""`python -m tests.type_check`: mypy of runtime and trainer.

A second call waits for the first, and then takes a second, because it reads the cache of the first. `run_tests.sh`
starts it while one process collects the tests; the test of types is such a second call.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys

from tests import ROOT

FOLDERS = ("base/claw_base", "openclaw", "slime/slime")


def main() -> int:
    cache = ROOT / ".mypy_cache"
    cache.mkdir(exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return subprocess.run([sys.executable, "-m", "mypy", *FOLDERS], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
