"""Tests how many threads a computation takes next to others, in the measurement, the engine and the trainer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.service import EngineService
from slime.engines.requests import GenerateRequest
from slime.utils import idle_processors
from slime.utils.idle_processors import IdleProcessors, seconds, usable_cpus
from tests.fakes.fixtures import MakeSamples, MakeTrainer


class Machine:
    """Four processors, of which others use `others` at most; `clock` advances by a second a call."""

    def __init__(self) -> None:
        self.others, self.own = 0.0, 0.0
        self._now = (0.0, 0.0, 0.0)

    def clock(self) -> tuple[float, float, float]:
        wall, own, idle = self._now
        free = 4 - self.others
        self._now = wall + 1, own + min(self.own, free), idle + max(0.0, free - self.own)
        return self._now


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_process_takes_what_others_leave_and_gives_it_back() -> None:
    machine = Machine()
    processors = IdleProcessors(2, 4, machine.clock)
    counts = []
    for others in (0, 0, 1, 1, 2, 4, 4, 0.2, 0):
        machine.others, machine.own = others, processors.count()
        counts.append(processors.count())
    assert counts == [4, 4, 3, 3, 2, 2, 2, 4, 4]  # two of four are its own share, whatever others do


def test_processors_are_measured_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((100.05, 100.1, 100.15, 100.3, 100.35))
    monkeypatch.setattr(idle_processors.time, "monotonic", lambda: next(times))
    calls: list[float] = []

    def clock() -> tuple[float, float, float]:
        calls.append(100.3 if calls else 100.0)
        return calls[-1], 0.0, 0.0

    processors = IdleProcessors(1, 2, clock)
    for _ in range(5):
        processors.count()
    assert calls == [100.0, 100.3]


def test_the_measured_seconds_belong_to_this_process_and_this_machine() -> None:
    wall, own, idle = seconds()
    while seconds()[1] < own + 0.1:
        sum(range(10_000))
    later = seconds()
    assert later[0] >= wall + 0.05 and later[1] >= own + 0.1 and later[2] >= idle
    assert IdleProcessors(1).count() == 1


def test_a_container_counts_its_own_quota(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(idle_processors, "CONTAINER", tmp_path)
    without = usable_cpus()
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_cpus() == without
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 2000000\nuser_usec 1\n")
    assert usable_cpus() == 1
    before = seconds()
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    after = seconds()
    assert after[2] - before[2] == pytest.approx(1.5 * (after[0] - before[0]) - 0.5)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or usable_cpus() < 2, reason="needs two CPUs")
def test_only_the_processors_of_this_process_count() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        only = psutil.cpu_times(percpu=True)[min(allowed)]
        assert usable_cpus() == 1 and seconds()[2] == pytest.approx(only.idle + only.iowait, abs=1.0)
        assert IdleProcessors(1).count() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_an_engine_computes_with_idle_processors_unless_a_trial_does(
    monkeypatch: pytest.MonkeyPatch, model_folder: str
) -> None:
    monkeypatch.setattr(IdleProcessors, "count", lambda self: 2)
    threads: list[int] = []

    def answer(service: EngineService) -> int:
        body = {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 2, "ignore_eos": True}}
        row: Sequence = service.sequence(GenerateRequest.model_validate(body))
        service.engine.on_progress = lambda rows: threads.append(torch.get_num_threads())
        service.engine.submit(row)
        while row.finish is None:
            time.sleep(0.005)
        return threads[-1]

    service = EngineService(EmbeddedArguments(model_path=model_folder, use_idle_processors=True))
    service.engine.start()
    try:
        assert answer(service) == 2
        service.trying = True
        assert answer(service) == 1
    finally:
        service.engine.stop()


def test_a_trainer_computes_with_idle_processors(
    monkeypatch: pytest.MonkeyPatch, make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    counts = iter((1, 2, 3))  # before the step, and before its backward pass
    monkeypatch.setattr(IdleProcessors, "count", lambda self: next(counts))
    trainer = make_trainer(use_idle_processors=True)
    trainer.load()
    trainer.train(0, make_samples(2))
    assert torch.get_num_threads() == 2
