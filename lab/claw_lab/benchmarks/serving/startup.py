"""Measures the seconds to the first answer, from a fresh clone and from an installed one.

`bash lab/run.sh benchmarks.serving.startup` clones this repository's HEAD into a temporary folder,
starts the tiny script there twice and prints one JSON line. The first start sets up a virtual environment with
downloads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import httpx

from claw_lab import ROOT
from openclaw_test.loop.real_loop import Loop


def seconds_to_first_answer(clone: Path, run_dir: Path) -> tuple[float, float]:
    """Returns (seconds from the start of the script to the end of the first answer, peak memory in MiB after it)."""
    loop = Loop(run_dir, script=clone / "openclaw-rl" / "run_tiny_openclaw_rl.sh")
    started = time.monotonic()
    loop.start()
    try:
        loop.wait_ready(900.0)
        body = {"messages": [{"role": "user", "content": "What is 12 + 7?"}], "max_tokens": 100}
        httpx.post(f"{loop.url}/v1/chat/completions", json=body, timeout=60.0).raise_for_status()
        return time.monotonic() - started, loop.memory_mib()
    finally:
        loop.stop()


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for name in ("VIRTUAL_ENV", "VENV", "PYTHONPATH"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        fresh, _ = seconds_to_first_answer(clone, Path(folder) / "run1")
        installed, memory = seconds_to_first_answer(clone, Path(folder) / "run2")
    print(
        json.dumps(
            {
                "fresh_clone_s": round(fresh, 1),
                "installed_s": round(installed, 1),
                "memory_mib": round(memory),
            }
        )
    )
