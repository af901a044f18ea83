from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from claw_lab.benchmarks.serving.stages import (
    PLAIN_WORK,
    STAGES,
    Watch,
    earlier_numbers,
    grown,
    places,
    report,
    watched,
)  # fmt: skip


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_every_stage_names_existing_functions() -> None:
    found = {stage for stage, owner, name in places() if callable(getattr(owner, name))}
    assert found == set(STAGES)
    assert all(inspect.getattr_static(owner, name) is not None for _, owner, name in places())


def test_a_stage_has_its_own_processor_time_without_waits_and_inner_stages() -> None:
    watch = Watch()
    inner = watched(watch, "inner", lambda: burn(0.02))

    async def counted() -> AsyncGenerator[int, None]:
        burn(0.01)
        yield 1
        burn(0.01)

    numbers = watched(watch, "numbers", counted)

    async def whole() -> int:
        burn(0.01)
        inner()
        await asyncio.sleep(0.05)
        return sum([number async for number in numbers()])

    assert asyncio.run(watched(watch, "outer", whole)()) == 1
    spent = watch.spent()
    assert 0.02 <= spent["inner"] < 0.03 and 0.02 <= spent["numbers"] < 0.03
    assert 0.01 <= spent["outer"] < 0.02


def test_a_stage_a_fifth_slower_relative_to_plain_work_is_reported(tmp_path: Path) -> None:
    earlier = {
        PLAIN_WORK: 1.0,
        "alone parse": 1.0,
        "alone commit": 1.0,
        "alone send": 0.01,
        "alone waiting": 1.0,
    }
    file = tmp_path / "stages.json"
    file.write_text(json.dumps(report(earlier, 10)))
    assert earlier_numbers(file) == earlier
    now = {PLAIN_WORK: 2.0, "alone parse": 2.5, "alone commit": 2.3, "alone send": 0.03, "alone waiting": 9.0}
    assert [line.split(":")[0] for line in grown(now, earlier)] == ["alone parse"]
