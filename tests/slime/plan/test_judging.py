"""Tests the throughput estimate of a judge model: higher with more GPUs, fewer votes and shorter replies."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from slime.plan.hardware import GPUS
from slime.plan.judging import line, token_seconds
from slime.plan.memory import EngineMemory
from slime.plan.placement_plan import Server
from slime.plan.shape import read_shape

SHAPE = read_shape("Qwen3-4B")


def turns(gpus: int = 2, engines: int = 1, gpu: str = "H100", **flags: Any) -> int:
    """Returns the turns per hour of engines with this number of GPUs each."""
    plan: Any = SimpleNamespace(
        servers=(Server("judge", EngineMemory(SHAPE, gpus, 0.8, 32768), engines),), gpu=GPUS[gpu]
    )
    given: Any = SimpleNamespace(**{"num_judge_workers": 2, "judge_max_requests": 32, "prm_m": 3, **flags})
    told = line(given, plan)
    assert told is not None
    return int(re.findall(r"about ([\d,]+) turns", told)[0].replace(",", ""))


def test_a_decode_step_reads_weights_and_kv_caches() -> None:
    engine, gpu = EngineMemory(SHAPE, 1, 0.8, 32768), GPUS["H100"]
    alone, many = token_seconds(engine, gpu, 0), token_seconds(engine, gpu, 32)
    assert alone == pytest.approx(2 * SHAPE.parameters / 3.35e12 / 0.5)
    assert many - alone == pytest.approx(32 * 4096 * SHAPE.kv_bytes / 3.35e12 / 0.5)
    assert 8192 * many < 300, "the longest reply of a thinking judge ends within its time"


def test_turns_per_hour_depend_on_votes_reply_length_and_gpus() -> None:
    usual = turns(prm_max_new_tokens=8192)
    assert turns(prm_m=1, prm_max_new_tokens=8192) == pytest.approx(3 * usual, rel=0.05)
    assert turns(prm_max_new_tokens=4096) > 1.9 * usual
    assert turns(engines=2, judge_max_requests=64, prm_max_new_tokens=8192) == pytest.approx(
        2 * usual, rel=0.05
    )
    assert turns(gpu="H200", prm_max_new_tokens=8192) > 1.3 * usual
    assert turns(gpu="RTX4090", gpus=1, prm_max_new_tokens=8192) < usual / 4, "few requests fit its memory"


def test_without_judge_engines_no_line_is_printed() -> None:
    plan: Any = SimpleNamespace(
        servers=(Server("policy", EngineMemory(SHAPE, 1, 0.8, 32768), 1),), gpu=GPUS["H100"]
    )
    given: Any = SimpleNamespace()
    assert line(given, plan) is None
