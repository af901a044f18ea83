"""Weights through shared memory: nothing is written over that somebody computes with, and what is read is proven."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from slime.engines.embedded.model import ServedModel, build_model
from slime.engines.embedded.weights import WeightStore
from slime.engines.requests import WeightsError
from slime.errors import EngineError
from slime.weights.checksum import checksum_of
from slime.weights.folders import write_weights
from slime.weights.slots import copy_slot, free_slot, hold, is_slot


@pytest.fixture
def model(model_path: Path) -> ServedModel:
    return build_model(str(model_path), "cpu", "float32")


@pytest.fixture
def store(model: ServedModel, model_path: Path) -> WeightStore:
    store = WeightStore(model, lambda install: install())
    store.load(str(model_path), 0)
    return store


def put(slots: Path, weights: dict[str, Tensor]) -> tuple[str, str]:
    """A version in a slot, and its checksum."""
    with free_slot(slots) as slot:
        return str(slot), checksum_of(write_weights(slot, weights.items(), len(weights), None))


def plus(model_path: Path, number: float) -> dict[str, Tensor]:
    return {name: tensor + number for name, tensor in load_file(model_path / "model.safetensors").items()}


def first_value(model: ServedModel) -> float:
    return float(next(iter(model.tensors.values())).flatten()[0])


def test_an_engine_runs_on_the_memory_that_the_trainer_wrote(
    store: WeightStore, model: ServedModel, model_path: Path, tmp_path: Path
) -> None:
    slot, checksum = put(tmp_path, plus(model_path, 1.0))
    assert store.prepare(slot, 1).checksum == checksum
    assert store.switch(1).checksum == checksum == store.live.checksum
    for name, tensor in plus(model_path, 1.0).items():
        assert torch.equal(model.tensors[name], tensor), name


def test_a_slot_is_free_again_once_no_engine_runs_on_it(
    store: WeightStore, model: ServedModel, model_path: Path, tmp_path: Path
) -> None:
    used, values = [], []
    for version in range(1, 5):
        slot, _ = put(tmp_path, plus(model_path, float(version)))
        store.prepare(slot, version)
        values.append(first_value(model))
        store.switch(version)
        used.append(Path(slot).name)
    assert used == ["slot-0", "slot-1", "slot-0", "slot-1"], "two are enough, and their memory is used again"
    base = values[0]
    assert values == pytest.approx([base, base + 1, base + 2, base + 3]), (
        "what serves stays as it is until the switch"
    )


def test_a_version_that_was_prepared_and_not_switched_to_keeps_its_slot_until_it_is_dropped(
    store: WeightStore, model_path: Path, tmp_path: Path
) -> None:
    first, _ = put(tmp_path, plus(model_path, 1.0))
    store.prepare(first, 1)
    assert put(tmp_path, plus(model_path, 2.0))[0] != first
    store.discard()
    assert put(tmp_path, plus(model_path, 3.0))[0] == first


def test_a_slot_that_is_being_written_or_was_left_half_written_is_refused(
    store: WeightStore, model_path: Path, tmp_path: Path
) -> None:
    with free_slot(tmp_path) as slot:
        with pytest.raises(WeightsError, match="is being written over"):
            store.prepare(str(slot), 1)
    with pytest.raises(WeightsError, match="was not written to its end"):
        store.prepare(str(slot), 1)
    assert store.live.version == 0


def test_a_writer_that_is_killed_leaves_a_slot_that_counts_as_empty(tmp_path: Path) -> None:
    put(tmp_path, {"a": torch.ones(3)})
    program = (
        "import sys, time; from pathlib import Path; from slime.weights.slots import free_slot\n"
        "with free_slot(Path(sys.argv[1])) as slot: print(slot, flush=True); time.sleep(60)"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    slot = Path(writer.stdout.readline().strip())
    with pytest.raises(EngineError, match="is being written over"):
        hold(slot)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    with pytest.raises(EngineError, match="was not written to its end"):
        hold(slot)
    with free_slot(tmp_path) as again:
        assert again == slot


def test_each_of_several_holders_keeps_the_slot(tmp_path: Path) -> None:
    slot, _ = put(tmp_path, {"a": torch.ones(3)})
    with ExitStack() as holders:
        for _ in range(2):
            holders.enter_context(hold(Path(slot)))
        copy_slot(Path(slot), (folder := tmp_path / "artifact", folder.mkdir())[0])
        with free_slot(tmp_path) as other:
            assert str(other) != slot
    assert not is_slot(folder) and torch.equal(load_file(folder / "model.safetensors")["a"], torch.ones(3))


class Engine:
    """Takes what it is told to take from memory; `others`: it sees no memory of this machine."""

    url = "http://engine"

    def __init__(self, others: bool = False) -> None:
        self.others, self.version, self.checksum, self.prepared = others, 0, "sum-0", ""
        self.paths: list[str] = []

    def prepare(self, path: str, version: int) -> str:
        if self.others and "slot" in path:
            raise EngineError(f"{path} is not a folder")
        self.paths.append(path)
        self.prepared = "sum-1"
        return self.prepared

    def switch(self, version: int) -> None:
        self.version, self.checksum = version, self.prepared

    def discard(self) -> None:
        self.prepared = ""

    def info(self) -> Any:
        return self


def test_engines_read_memory_while_the_artifact_is_written_and_switch_once_it_is(tmp_path: Path) -> None:
    from slime.weights.update import Candidate, WeightUpdate
    from slime.weights.versions import WeightVersion, read_live, write_live

    near, far, reading = Engine(), Engine(others=True), threading.Event()
    write_live(tmp_path, WeightVersion(0, "/weights/v0", "sum-0"))
    seen: list[Any] = []

    def persist() -> None:
        assert reading.wait(20), "engines read while it is written"
        seen.append((near.version, far.version, read_live(tmp_path).version))  # type: ignore[union-attr]

    prepare = near.prepare
    near.prepare = lambda path, version: (reading.set(), prepare(path, version))[1]  # type: ignore[method-assign]
    candidate = Candidate(WeightVersion(1, "/weights/v1", "sum-1"), 0, 0)
    WeightUpdate([near, far], tmp_path, lambda _: None).publish(candidate, persist, "/shared/slot-0")
    assert seen == [(0, 0, 0)], "nothing is live before its artifact is there"
    assert (near.version, far.version) == (1, 1)
    assert near.paths == ["/shared/slot-0"] and far.paths == ["/weights/v1"]
