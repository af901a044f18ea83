"""Usage and cost of rented GPUs, read from the folder in which a run's processes count tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_base.run_folder.usage import (
    Meter,
    Prices,
    cost_of,
    meter_path,
    rented_usage,
    summary,
    usage_of,
    write_prices,
)


def test_a_run_without_rented_services_prints_no_cost(tmp_path: Path) -> None:
    assert rented_usage(tmp_path) is None
    assert summary(tmp_path) is None


def test_runtime_and_trainer_read_the_same_counts(tmp_path: Path) -> None:
    for name, role in (("engine-0", "serving"), ("engine-1", "serving"), ("trainer", "trainer")):
        meter = Meter(meter_path(tmp_path, name), role)
        meter.add(prefill=1_000_000, train=2_000_000 * (role == "trainer"))
        meter.flush()
    prices = Prices(1.0, 2.0, 4.0)
    write_prices(tmp_path, prices, "a-model")
    found = rented_usage(tmp_path)
    assert found is not None
    assert found["tokens"] == usage_of(tmp_path)
    assert found["tokens"]["serving"] == {"prefill": 2_000_000, "sample": 0, "train": 0}
    assert found["cost_usd"] == pytest.approx(11.0) == cost_of(tmp_path, prices)
    assert summary(tmp_path) == "3,000,000 prefill, 0 sample, 2,000,000 train tokens, $11.0000"


def test_a_restarted_process_continues_its_counts(tmp_path: Path) -> None:
    for _ in range(2):
        meter = Meter(meter_path(tmp_path, "engine-0"), "serving")
        meter.add(sample=5)
        meter.flush()
    assert usage_of(tmp_path) == {"serving": {"prefill": 0, "sample": 10, "train": 0}}
