"""Tests weights that an SGLang engine reads from memory on its machine: its requests, and failures at each point."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from slime.engines.client import EngineControl
from slime.engines.sglang import broadcast, memory
from slime.engines.sglang.memory import ThroughMemory
from slime.engines.sglang.routes import SGLangRoutes
from slime.weights.checksum import weights_checksum
from slime.weights.folders import copy_model_files, write_weights
from slime.weights.slots import free_slot
from slime.weights.versions import artifact_folder
from tests.fakes.sender_process import SenderProcess
from tests.fakes.sglang import FakeSGLang, Running
from tests.fakes.tiny_engine_model import plain_model

Start = Callable[..., Running]
MakeClient = Callable[..., EngineControl]

BUCKET = 20_000  # bytes; several buckets of the tiny model


@pytest.fixture(scope="module")
def sharer() -> Iterator[SenderProcess]:
    process = SenderProcess(shares=True)
    process.leave().result(300)  # so that no test's time includes its start
    yield process
    process.close()


@pytest.fixture
def start(model_path: Path) -> Iterator[Start]:
    torch.set_num_threads(1)
    running: list[Running] = []

    def start_one(tp: int = 1) -> Running:
        running.append(Running(FakeSGLang(model_path, plain_model, tp)))
        return running[-1]

    yield start_one
    for one in running:
        one.fake.group.freed.set()
        one.close()


@pytest.fixture
def client(sharer: SenderProcess, tmp_path: Path) -> Iterator[Callable[..., EngineControl]]:
    made: list[EngineControl] = []

    def make(url: str, timeout: float = 20.0, on_stuck: Callable[[], None] = lambda: None) -> EngineControl:
        transport = ThroughMemory(
            url, sharer, BUCKET, timeout, lambda version: artifact_folder(tmp_path, version), on_stuck
        )
        made.append(EngineControl(url, "sglang", prepare_timeout=120, routes=SGLangRoutes(transport)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def in_slot(slots: Path, model: Path) -> tuple[str, str]:
    """Returns the model in shared memory as the trainer writes it, and its checksum."""
    weights = load_file(model / "model.safetensors")
    with free_slot(slots) as slot:
        copy_model_files(slot, str(model))
        write_weights(slot, weights.items(), len(weights), None)
    return str(slot), weights_checksum(weights)


def from_disk(engine: Running) -> list[str]:
    return [call for call in engine.fake.calls if call.startswith("update ")]


@pytest.mark.parametrize("tp", [1, 2])
def test_an_engine_loads_a_slot_in_buckets_and_verifies_it(
    start: Start, client: MakeClient, sharer: SenderProcess, other_weights: Path, tmp_path: Path, tp: int
) -> None:
    engine = start(tp)
    engine.fake.blind = True
    control = client(engine.url)
    slot, checksum = in_slot(tmp_path / "slots", other_weights)
    assert control.prepare(slot, 4) == checksum
    assert control.switch(4) == checksum
    assert engine.fake.calls == ["pause retract", "version loading 4", "version 4", "continue"]
    sent = load_file(other_weights / "model.safetensors")
    assert engine.fake.group.bytes == sum(tensor.nbytes for tensor in sent.values())
    assert engine.fake.group.buckets > 1
    held = [dict(engine.fake.model.named_parameters()), *engine.fake.group.others]
    assert len(held) == tp and all(torch.equal(own[name], sent[name]) for own in held for name in sent)
    assert (control.info().version, control.info().checksum) == (4, checksum)


def test_an_engine_that_rejects_a_bucket_reads_the_folder(
    start: Start, client: MakeClient, sharer: SenderProcess, other_weights: Path, tmp_path: Path
) -> None:
    engine = start()
    engine.fake.fault, engine.fake.faults_left = "load_fails", 1
    control = client(engine.url)
    slot, checksum = in_slot(tmp_path / "slots", other_weights)
    control.prepare(slot, 4)
    assert control.switch(4) == checksum and not engine.fake.paused
    assert from_disk(engine) == ["update 4"]


def test_an_engine_that_falls_back_to_the_folder_serves_that_version(
    start: Start, client: MakeClient, other_weights: Path, tmp_path: Path
) -> None:
    engine = start()
    engine.fake.fault, engine.fake.faults_left = "load_fails", 1
    control = client(engine.url)
    slot, checksum = in_slot(tmp_path / "slots", other_weights)
    shutil.copytree(other_weights, artifact_folder(tmp_path, 4))
    control.prepare(slot, 4)
    assert control.switch(4) == checksum
    assert from_disk(engine) == ["update 4"] and control.info().model_path == slot


def test_an_engine_that_crashed_during_a_bucket_reads_from_disk_afterwards(
    start: Start,
    client: MakeClient,
    model_path: Path,
    other_weights: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = start()
    engine.fake.fault = "ends"
    control = client(engine.url)
    for number, model in ((1, other_weights), (2, model_path), (3, other_weights)):
        slot, checksum = in_slot(tmp_path / "slots", model)
        control.prepare(slot, number)
        assert control.switch(number) == checksum == control.info().checksum and not engine.fake.paused
    assert engine.fake.starts == 2 and from_disk(engine) == ["update 1", "update 2", "update 3"]
    assert caplog.text.count("reads them from disk from now on") == 1


def test_the_first_bucket_is_read_before_requests_are_paused(
    start: Start,
    client: MakeClient,
    sharer: SenderProcess,
    other_weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, waited = start(), list[bool]()
    share = sharer.share

    def watched(bucket: Any, ranks: int) -> Any:
        waited.append(engine.fake.paused)
        return share(bucket, ranks)

    monkeypatch.setattr(sharer, "share", watched)
    control = client(engine.url)
    control.prepare(in_slot(tmp_path / "slots", other_weights)[0], 4)
    control.switch(4)
    assert waited[0] is False and all(waited[1:])


class OnGpu:
    """A bucket, and the tensors read from it, by device."""

    entries = ()

    def __init__(self) -> None:
        self.read_to: list[str] = []

    def read(self, device: str) -> Any:
        self.read_to.append(device)
        return self

    def to(self, device: str) -> str:
        return device


def test_a_bucket_is_read_once_and_copied_to_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "serialized", lambda flat, bucket: flat)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda rank: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.multiprocessing, "set_sharing_strategy", lambda strategy: None)
    one, bucket = memory.Sharer(), OnGpu()
    one.device = "cuda"
    assert one.share(bucket, 2) == ["cuda:0", "cuda:1"]  # type: ignore[arg-type]
    assert bucket.read_to == ["cuda:0"]


def test_a_crashed_memory_sharer_is_restarted_and_the_engine_continues(
    start: Start,
    client: MakeClient,
    sharer: SenderProcess,
    model_path: Path,
    other_weights: Path,
    tmp_path: Path,
) -> None:
    engine = start()
    control = client(engine.url)
    for number, model in ((1, other_weights), (2, model_path)):
        sharer.kill()
        slot, checksum = in_slot(tmp_path / "slots", model)
        control.prepare(slot, number)
        assert control.switch(number) == checksum and not engine.fake.paused
    assert from_disk(engine) == []


def test_a_hanging_engine_is_reported_and_answers_with_no_partial_weights(
    start: Start, client: MakeClient, other_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, stuck = start(), list[str]()
    engine.fake.fault = "hangs"
    monkeypatch.setattr(broadcast, "RELEASE_SECONDS", 0.2)
    control = client(engine.url, timeout=1.5, on_stuck=lambda: stuck.append("told"))
    slot, _ = in_slot(tmp_path / "slots", other_weights)
    control.prepare(slot, 4)
    with pytest.raises(Exception, match="hangs"):
        control.switch(4)
    assert stuck == ["told"] and engine.fake.paused and control.info().checksum == ""


@pytest.mark.parametrize("fault", ["stale_head", "loads_nothing"])
def test_tensors_that_were_not_loaded_are_detected(
    start: Start, client: MakeClient, other_weights: Path, tmp_path: Path, fault: str
) -> None:
    engine = start()
    engine.fake.fault = fault
    control = client(engine.url)
    control.info()
    control.prepare(in_slot(tmp_path / "slots", other_weights)[0], 4)
    with pytest.raises(Exception, match=r"lm_head|none of its tensors changed"):
        control.switch(4)
    assert control.info().checksum == ""
