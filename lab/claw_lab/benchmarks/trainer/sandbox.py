"""Measures the milliseconds of a call in a warm Python session and in a fresh sandbox, and calls per second on all
cores.

bash lab/run.sh benchmarks.trainer.sandbox [--image NAME_OR_ARCHIVE]

With an image: seconds to unpack it, and milliseconds of a command in a fresh sandbox with the image and with this
machine's system.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from slime.sandbox import PythonSession, Workspace, image_of, run

CODE = "sum(i * i for i in range(1000))"
PAUSE = 0.2  # seconds between fresh sandboxes, less than an episode takes


def fresh_ms() -> float:
    """Returns the time from the start of a sandbox to its first answer."""
    with PythonSession() as session:
        began = time.monotonic()
        session.run(CODE)
        return (time.monotonic() - began) * 1e3


def warm_ms(calls: int) -> list[float]:
    with PythonSession() as session:
        session.run(CODE)
        return [session.run(CODE).seconds * 1e3 for _ in range(calls)]


def on_image_ms(name: str) -> dict[str, float]:
    """Runs sandboxes with the image and with this machine's system in turn; returns the time, and the processor time
    of all processes of a sandbox."""
    milliseconds: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        began = time.monotonic()
        image = image_of(name, Path(folder))
        unpacked = time.monotonic() - began
        place = image.workdir if image.workdir != "/" else "/workspace"
        for _ in range(60):
            for one, key in ((image, "on_image"), (None, "on_machine")):
                began, used = time.monotonic(), children_seconds()
                run("true", 60.0, image=one)
                milliseconds[f"{key}_p50_ms"].append((time.monotonic() - began) * 1e3)
                milliseconds[f"{key}_cpu_ms"].append((children_seconds() - used) * 1e3)
            began = time.monotonic()
            Workspace(place=place, image=image).close()
            milliseconds["workspace_on_image_p50_ms"].append((time.monotonic() - began) * 1e3)
    numbers = {
        "mib": image.size / 2**20,
        "entries": image.entries,
        "unpack_s": unpacked,
        "load": os.getloadavg()[0],
    }
    return numbers | {key: statistics.median(values) for key, values in milliseconds.items()}


def children_seconds() -> float:
    """Returns the processor time of ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--image", help="image known to podman or docker, or an archive")
    args = parser.parse_args()
    if args.image:
        print(json.dumps({name: round(value, 2) for name, value in on_image_ms(args.image).items()}))
        return
    cores = os.cpu_count() or 1
    fresh_ms()
    fresh = []
    for _ in range(40):
        time.sleep(PAUSE)
        fresh.append(fresh_ms())
    warm = warm_ms(1000)
    began = time.monotonic()
    with ThreadPoolExecutor(cores) as pool:
        calls = sum(len(part) for part in pool.map(warm_ms, [1000] * cores))
    rate = calls / (time.monotonic() - began)
    began = time.monotonic()
    with ThreadPoolExecutor(cores) as pool:
        boxes = len(list(pool.map(lambda _: fresh_ms(), range(60))))
    fresh_rate = boxes / (time.monotonic() - began)
    numbers = {
        "warm_p50_ms": statistics.median(warm),
        "fresh_p50_ms": statistics.median(fresh),
        "warm_calls_per_second": rate,
        "fresh_calls_per_second": fresh_rate,
        "load": os.getloadavg()[0],
    }
    print(json.dumps({name: round(value, 2) for name, value in numbers.items()}))


if __name__ == "__main__":
    main()
