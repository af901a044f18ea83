"""Tests weights sent to an SGLang engine by broadcast: real gloo groups, and failures at each point of an update."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from slime.engines.client import EngineControl, EngineControlError
from slime.engines.sglang import broadcast
from slime.engines.sglang.broadcast import Broadcast
from slime.engines.sglang.buckets import plan_buckets
from slime.engines.sglang.routes import SGLangRoutes
from slime.errors import EngineError
from slime.weights.checksum import weights_checksum
from slime.weights.update import Candidate, WeightUpdate
from slime.weights.versions import WeightVersion, artifact_folder, read_live
from tests.fakes.sender_process import SenderProcess, context
from tests.fakes.sglang import FakeSGLang, Running, serve
from tests.fakes.tiny_engine_model import plain_model

Start = Callable[..., Running]
MakeClient = Callable[..., EngineControl]

BUCKET = 20_000  # bytes; several buckets of the tiny model
FALLS_BACK = ("refuses_group", "never_joins", "load_fails")
SECONDS = {"never_joins": 1.0}
"""Time limits that a fault must reach. The others fail by themselves, independent of the machine's load."""


def checksum_of(folder: Path) -> str:
    return weights_checksum(load_file(folder / "model.safetensors"))


@pytest.fixture(scope="module")
def sender() -> Iterator[SenderProcess]:
    process = SenderProcess()
    process.leave().result(300)  # so that no test's time includes its start
    yield process
    process.close()


@pytest.fixture
def start(model_path: Path) -> Iterator[Start]:
    torch.set_num_threads(1)
    running: list[Running] = []

    def start_one(tp: int = 1, blind: bool = True) -> Running:
        running.append(Running(FakeSGLang(model_path, plain_model, tp)))
        running[-1].fake.blind = blind
        return running[-1]

    yield start_one
    for one in running:
        one.fake.group.freed.set()
        one.close()


@pytest.fixture
def client(sender: SenderProcess, tmp_path: Path) -> Iterator[Callable[..., EngineControl]]:
    """f(...): a client of an engine with broadcast weights, as a driver creates it."""
    made: list[EngineControl] = []

    def make(url: str, timeout: float = 90.0, on_stuck: Callable[[], None] = lambda: None) -> EngineControl:
        by_broadcast = Broadcast(
            url, sender, BUCKET, timeout, lambda version: artifact_folder(tmp_path, version), on_stuck
        )
        made.append(EngineControl(url, "sglang", prepare_timeout=120, routes=SGLangRoutes(by_broadcast)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def version(number: int, folder: Path) -> Candidate:
    return Candidate(WeightVersion(number, str(folder), checksum_of(folder)), number, number - 1)


def from_disk(engine: Running) -> list[str]:
    return [call for call in engine.fake.calls if call.startswith("update ")]


@pytest.mark.parametrize("tp", [1, 2])
def test_an_engine_without_access_to_the_folder_gets_and_verifies_broadcast_weights(
    start: Start, client: MakeClient, other_weights: Path, tp: int
) -> None:
    engine = start(tp)
    engine.fake.path = "/models/of/another/machine"
    control = client(engine.url)
    control.prepare(str(other_weights), 4)
    assert control.switch(4) == checksum_of(other_weights)
    assert engine.fake.calls == ["pause retract", "version loading 4", "version 4", "continue"]
    sent = load_file(other_weights / "model.safetensors")
    assert engine.fake.group.bytes == sum(tensor.nbytes for tensor in sent.values())
    assert engine.fake.group.buckets > 1 and engine.fake.group.groups == {}
    held = [dict(engine.fake.model.named_parameters()), *engine.fake.group.others]
    assert len(held) == tp and all(torch.equal(own[name], sent[name]) for own in held for name in sent)
    assert (control.info().version, control.info().model_path) == (4, str(other_weights))


def test_a_rank_that_keeps_its_old_weights_is_detected(
    start: Start, client: MakeClient, other_weights: Path
) -> None:
    engine = start(tp=2)
    engine.fake.fault = "stale_rank"
    control = client(engine.url)
    control.info()
    control.prepare(str(other_weights), 4)
    with pytest.raises(EngineControlError, match=r"were not replaced, for example 1/"):
        control.switch(4)
    assert control.info().checksum == ""


@pytest.mark.parametrize("fault", ["stale_head", "loads_nothing"])
def test_a_broadcast_that_was_not_loaded_is_detected(
    start: Start, client: MakeClient, other_weights: Path, fault: str
) -> None:
    engine = start()
    engine.fake.fault = fault
    control = client(engine.url)
    control.info()
    control.prepare(str(other_weights), 4)
    with pytest.raises(EngineControlError, match=r"lm_head|none of its tensors changed"):
        control.switch(4)
    assert control.info().checksum == ""


def test_one_sender_updates_several_engines_repeatedly(
    start: Start,
    client: MakeClient,
    sender: SenderProcess,
    model_path: Path,
    other_weights: Path,
    tmp_path: Path,
) -> None:
    engines = [start(), start()]
    update = WeightUpdate([client(one.url) for one in engines], tmp_path, lambda _: None, patience=90)
    sender.kill()
    before = sender.started
    for number, folder in enumerate([other_weights, model_path, other_weights], start=1):
        update.publish(version(number, folder))
        assert [one.fake.version for one in engines] == [str(number)] * 2
    assert sender.started == before + 1 and not any(map(from_disk, engines))


@pytest.mark.parametrize("fault", FALLS_BACK)
def test_weights_that_cannot_be_broadcast_are_read_from_disk(
    start: Start, client: MakeClient, other_weights: Path, fault: str
) -> None:
    engine = start(blind=False)
    engine.fake.fault = fault
    control = client(engine.url, SECONDS.get(fault, 90.0))
    control.prepare(str(other_weights), 4)
    assert control.switch(4) == checksum_of(other_weights)
    assert from_disk(engine) == ["update 4"] and not engine.fake.paused
    assert not engine.fake.group.open and engine.fake.group.groups == {}


@pytest.mark.parametrize("fault", FALLS_BACK)
def test_an_engine_that_can_neither_update_nor_roll_back_serves_no_mixed_versions(
    start: Start, client: MakeClient, other_weights: Path, fault: str
) -> None:
    engine = start()
    engine.fake.fault = fault
    control = client(engine.url, SECONDS.get(fault, 90.0))
    old = control.info()
    control.prepare(str(other_weights), 4)
    with pytest.raises(EngineControlError, match=r"was not broadcast \(.*nor read from disk"):
        control.switch(4)
    half = fault == "load_fails"
    assert engine.fake.paused == half
    assert control.info() == old if not half else control.info().version == -1
    engine.fake.fault = None
    again = control
    if fault in SECONDS:
        again = client(engine.url)
        again.prepare(str(other_weights), 4)
    assert again.switch(4) == checksum_of(other_weights) and not engine.fake.paused


def test_a_broadcast_that_cannot_complete_rolls_back_all_engines(
    start: Start, client: MakeClient, model_path: Path, other_weights: Path, tmp_path: Path
) -> None:
    good, bad = start(), start()
    controls = [client(one.url) for one in (good, bad)]
    update = WeightUpdate(controls, tmp_path, lambda _: None, patience=90, retry_interval=0.0)
    update.publish(version(1, model_path))
    bad.fake.fault, bad.fake.faults_left = "load_fails", 12  # six attempts, each by broadcast and from disk
    with pytest.raises(EngineError, match="was not broadcast"):
        update.publish(version(2, other_weights))
    assert [control.info().version for control in controls] == [1, 1]
    assert {control.info().checksum for control in controls} == {checksum_of(model_path)}
    live = read_live(tmp_path)
    assert live is not None and live.version == 1 and not bad.fake.paused and not good.fake.paused


def test_tensors_of_wrong_shapes_leave_the_engine_waiting_for_correct_ones(
    start: Start, client: MakeClient, other_weights: Path, tmp_path: Path
) -> None:
    """The folder is on another machine, so that only the engine can compare."""
    wrong = tmp_path / "wrong"
    shutil.copytree(other_weights, wrong)
    tensors = load_file(wrong / "model.safetensors")
    tensors["model.norm.weight"] = torch.zeros(31)
    save_file(tensors, wrong / "model.safetensors", metadata={"format": "pt"})
    engine = start()
    engine.fake.path = "/models/of/another/machine"
    control = client(engine.url)
    control.prepare(str(wrong), 3)
    with pytest.raises(EngineControlError, match=r"size of tensor|shape"):
        control.switch(3)
    assert engine.fake.paused and control.info().version == -1
    control.prepare(str(other_weights), 4)
    assert control.switch(4) == checksum_of(other_weights) and not engine.fake.paused


def test_a_hanging_engine_is_reported_and_the_others_continue(
    start: Start, client: MakeClient, other_weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "RELEASE_SECONDS", 0.3)
    engine, other = start(), start()
    engine.fake.fault = "hangs"
    ended: list[str] = []
    control = client(engine.url, timeout=2.0, on_stuck=lambda: ended.append(engine.url))
    control.prepare(str(other_weights), 4)
    began = time.monotonic()
    with pytest.raises(EngineControlError, match="hangs in a cancelled broadcast"):
        control.switch(4)
    assert time.monotonic() - began < 60.0 and ended == [engine.url]
    healthy = client(other.url)
    healthy.prepare(str(other_weights), 4)
    assert healthy.switch(4) == checksum_of(other_weights)


def test_a_crashed_sender_costs_one_attempt(
    start: Start, client: MakeClient, sender: SenderProcess, other_weights: Path, tmp_path: Path
) -> None:
    engine = start()
    control = client(engine.url)
    ask, killed = sender.send, threading.Event()

    def send(*words: object) -> Any:
        if not killed.is_set():
            killed.set()
            sender.process.kill()
        return ask(*words)

    sender.send = send
    try:
        WeightUpdate([control], tmp_path, lambda _: None, patience=90, retry_interval=0.0).publish(
            version(1, other_weights)
        )
    finally:
        del sender.send
    assert control.info().version == 1 and not engine.fake.paused and from_disk(engine) == ["update 1"]


def test_a_new_driver_detects_the_weights_that_an_engine_has(
    start: Start, client: MakeClient, model_path: Path, other_weights: Path, tmp_path: Path
) -> None:
    engine = start()
    folder = artifact_folder(tmp_path, 4)
    shutil.copytree(other_weights, folder)
    first = client(engine.url)
    first.prepare(str(folder), 4)
    first.switch(4)
    assert engine.fake.path == str(model_path)
    engine.fake.paused = True  # the driver was killed before it resumed the engine
    info = client(engine.url).info()
    assert (info.version, info.model_path, info.checksum) == (4, str(folder), checksum_of(other_weights))
    assert not engine.fake.paused


def test_a_new_driver_completes_the_update_in_which_the_last_one_was_killed(
    start: Start, client: MakeClient, other_weights: Path
) -> None:
    engine = start()
    for path, body in (
        ("/pause_generation", {"mode": "retract"}),
        ("/update_weight_version", {"new_version": "loading 3", "abort_all_requests": False}),
        ("/begin_weight_update", {}),
    ):
        assert httpx.post(engine.url + path, json=body, trust_env=False).status_code == 200
    control = client(engine.url)
    assert control.info().version == -1 and engine.fake.paused
    control.prepare(str(other_weights), 4)
    assert control.switch(4) == checksum_of(other_weights) and not engine.fake.paused


def test_a_pipeline_parallel_engine_reads_from_disk(
    start: Start, client: MakeClient, other_weights: Path
) -> None:
    engine = start(blind=False)
    engine.fake.group.parallel = {"pp_size": 2}
    control = client(engine.url)
    control.prepare(str(other_weights), 4)
    control.switch(4)
    assert from_disk(engine) == ["update 4"]
    engine.fake.blind = True
    control.prepare(str(other_weights), 5)
    with pytest.raises(EngineControlError, match="does not support weight broadcast with pp_size 2"):
        control.switch(5)


class Revived:
    """An engine in a separate process, restarted with its initial weights when it dies.

    `faults`: one for each process; the last process has none.
    """

    def __init__(self, folder: Path, faults: list[str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url, self.folder, self.closed = f"http://127.0.0.1:{self.port}", folder, False
        self.faults = [*faults, None]
        self.launch()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def launch(self) -> None:
        given = (str(self.folder), self.port, self.faults.pop(0))
        self.process = context().Process(target=serve, args=given, daemon=True)
        self.process.start()

    def watch(self) -> None:
        while not self.closed:
            self.process.join(0.1)
            if not self.process.is_alive() and not self.closed:
                self.launch()

    def close(self) -> None:
        self.closed = True
        self.thread.join()
        self.process.kill()
        self.process.join()


def test_an_engine_killed_at_any_point_of_a_broadcast_gets_the_weights_after_its_restart(
    client: MakeClient, model_path: Path, other_weights: Path, tmp_path: Path
) -> None:
    engine = Revived(model_path, ["dies_joining", "dies_receiving", "dies_ending"])
    try:
        control = client(engine.url)
        update = WeightUpdate([control], tmp_path, lambda _: None, patience=60, retry_interval=0.1)
        update.publish(version(1, other_weights))
        info = control.info()
        assert (info.version, info.checksum, engine.faults) == (1, checksum_of(other_weights), [])
    finally:
        engine.close()


def test_buckets_contain_every_byte_once_with_aligned_tensors(tmp_path: Path) -> None:
    torch.manual_seed(1)
    tensors = {
        "a": torch.randn(3, 5).to(torch.bfloat16),
        "b": torch.randn(7),
        "c": torch.randint(0, 9, (3,), dtype=torch.uint8),
        "d": torch.randn(40),
        "e": torch.randn(2, 2, dtype=torch.float64),
        "empty": torch.zeros(0, 4),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    buckets = plan_buckets(str(tmp_path), limit=100)
    assert sorted(entry.name for bucket in buckets for entry in bucket.entries) == sorted(tensors)
    assert all(bucket.size <= 100 or len(bucket.entries) == 1 for bucket in buckets) and len(buckets) > 2
    for bucket in buckets:
        flat, place = bucket.read("cpu"), 0
        for entry in bucket.entries:
            assert place % entry.itemsize == 0
            part = flat[place : place + entry.size].view(getattr(torch, entry.dtype)).reshape(entry.shape)
            assert torch.equal(part, tensors[entry.name])
            place += entry.size


def test_a_tensor_that_cannot_be_sent_is_reported(tmp_path: Path) -> None:
    save_file({"c": torch.zeros(2, dtype=torch.complex64)}, tmp_path / "model.safetensors")
    with pytest.raises(EngineError, match=r"c of .*model\.safetensors is C64, which cannot be sent"):
        plan_buckets(str(tmp_path), limit=100)
