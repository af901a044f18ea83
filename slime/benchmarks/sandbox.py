"""Milliseconds of a call in a warm Python session and in a fresh sandbox, and calls per second on all cores.

python slime/benchmarks/sandbox.py
"""

from __future__ import annotations

import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from slime.agents.sandbox import PythonSession

CODE = "sum(i * i for i in range(1000))"
PAUSE = 0.2  # seconds between fresh sandboxes, less than an episode takes


def fresh_ms() -> float:
    """From nothing to the first answer."""
    with PythonSession() as session:
        began = time.monotonic()
        session.run(CODE)
        return (time.monotonic() - began) * 1e3


def warm_ms(calls: int) -> list[float]:
    with PythonSession() as session:
        session.run(CODE)
        return [session.run(CODE).seconds * 1e3 for _ in range(calls)]


def main() -> None:
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
