"""Tests the choice of the engine that answers the gate: by backend, model and machine, and logged at the start."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slime.arguments.rules.engine import check_gate_engine
from slime.errors import ConfigError
from slime.plan import gate_engine
from slime.plan.gate_engine import gate_engine_of, log_gate_engine
from slime.plan.hardware import GIB
from slime.plan.shape import KNOWN


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """f(model, cpus=, memory=, **flags): the arguments after the choice was logged."""

    def ask(model: str = "Qwen3-4B", cpus: int = 32, memory: float = 256.0, **flags: Any) -> Any:
        (tmp_path / "config.json").write_text(json.dumps(KNOWN[model]))
        monkeypatch.setattr(gate_engine, "usable_cpus", lambda: cpus)
        monkeypatch.setattr(gate_engine.psutil, "virtual_memory", lambda: SimpleNamespace(total=memory * GIB))
        given = {
            "gate": True, "gate_engine": "auto", "gate_samples_path": "samples",
            "rollout_backend": "sglang", "offload_rollout": False, "hf_checkpoint": str(tmp_path),
            "rollout_external_engine_addrs": ["http://10.0.0.2:30000"],
        }  # fmt: skip
        args: Any = SimpleNamespace(**{**given, **flags})
        check_gate_engine(args)
        log_gate_engine(args)
        return args

    return ask


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        ({"rollout_backend": "embedded"}, "serving"),
        ({"rollout_backend": "embedded", "offload_rollout": True}, "cpu"),
        ({}, "cpu"),
        ({"rollout_backend": "vllm"}, "cpu"),
        ({"cpus": 4}, "serving"),
        ({"memory": 48.0}, "serving"),
        ({"model": "Qwen3-8B"}, "serving"),
        ({"model": "Qwen3-30B-A3B"}, "serving"),
        ({"gate": False}, "serving"),
        ({"gate_samples_path": None}, "serving"),
        ({"gate_engine": "cpu", "cpus": 2}, "cpu"),
        ({"gate_engine": "serving"}, "serving"),
        ({"gate_engine": "10.0.0.7:30000"}, "http://10.0.0.7:30000"),
    ],
)
def test_the_first_engine_that_works_is_chosen(asked: Any, flags: dict[str, Any], chosen: str) -> None:
    assert gate_engine_of(asked(**flags)) == chosen


def test_a_run_warns_if_no_engine_tests_explicit_requests(
    asked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    asked(cpus=4)
    [told] = caplog.messages
    assert told.startswith("updates are not tested on explicit requests") and "4 CPUs, fewer than 8" in told
    assert "to test on a spare engine" in told
    caplog.clear()
    with caplog.at_level(logging.INFO):
        asked()
        asked(gate_engine="10.0.0.7:30000")
        asked(gate=False)
    assert [message.rpartition(" by ")[2] for message in caplog.messages] == [
        "a separate engine on the CPU",
        "the spare engine http://10.0.0.7:30000",
    ]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("gpu", "must be auto, serving, cpu, or the HOST:PORT"),
        ("http://10.0.0.2:30000/", "this engine serves"),
        ("10.0.0.7:x", "must be auto"),
    ],
)
def test_an_invalid_spare_engine_is_rejected(asked: Any, address: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        asked(gate_engine=address)
