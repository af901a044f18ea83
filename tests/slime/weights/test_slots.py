"""Tests weights in shared memory: memory in use is never overwritten, and loaded weights are verified."""

from __future__ import annotations

import errno
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

from slime.engines.embedded import reading
from slime.engines.embedded.model import ServedModel, build_model
from slime.engines.embedded.weights import WeightStore
from slime.engines.requests import WeightsError
from slime.errors import EngineError
from slime.weights.checksum import checksum_of
from slime.weights.digests import digest_tensors, read_digests
from slime.weights.folders import write_weights
from slime.weights.mapped import STEP, ReadMemories, WrittenMemories
from slime.weights.slots import copy_slot, free_slot, hold, is_slot


@pytest.fixture
def model(model_path: Path) -> ServedModel:
    return build_model(str(model_path), "cpu", "float32")


@pytest.fixture
def store(model: ServedModel, model_path: Path) -> WeightStore:
    store = WeightStore(model, lambda install: install())
    store.load(str(model_path), 0)
    return store


MAPPED = WrittenMemories()


def put(slots: Path, weights: dict[str, Tensor]) -> tuple[str, str]:
    """Writes a version to a slot; returns its folder and its checksum."""
    with free_slot(slots) as slot:
        return str(slot), checksum_of(write_weights(slot, weights.items(), len(weights), None, MAPPED))


def plus(model_path: Path, number: float) -> dict[str, Tensor]:
    return {name: tensor + number for name, tensor in load_file(model_path / "model.safetensors").items()}


def first_value(model: ServedModel) -> float:
    return float(next(iter(model.tensors.values())).flatten()[0])


def test_an_engine_uses_the_trainers_memory_without_copying(
    store: WeightStore, model: ServedModel, model_path: Path, tmp_path: Path
) -> None:
    slot, checksum = put(tmp_path, plus(model_path, 1.0))
    assert store.prepare(slot, 1).checksum == checksum
    assert store.switch(1).checksum == checksum == store.live.checksum
    for name, tensor in plus(model_path, 1.0).items():
        assert torch.equal(model.tensors[name], tensor), name


def test_a_slot_is_free_once_no_engine_uses_it(
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


def test_a_prepared_version_keeps_its_slot_until_discarded(
    store: WeightStore, model_path: Path, tmp_path: Path
) -> None:
    first, _ = put(tmp_path, plus(model_path, 1.0))
    store.prepare(first, 1)
    assert put(tmp_path, plus(model_path, 2.0))[0] != first
    store.discard()
    assert put(tmp_path, plus(model_path, 3.0))[0] == first


def test_an_incomplete_slot_is_rejected(store: WeightStore, model_path: Path, tmp_path: Path) -> None:
    with free_slot(tmp_path) as slot:
        with pytest.raises(WeightsError, match="is being overwritten"):
            store.prepare(str(slot), 1)
    with pytest.raises(WeightsError, match="is incomplete"):
        store.prepare(str(slot), 1)
    assert store.live.version == 0


def test_a_killed_writer_leaves_an_unused_slot(tmp_path: Path) -> None:
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
    with pytest.raises(EngineError, match="is being overwritten"):
        hold(slot)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    with pytest.raises(EngineError, match="is incomplete"):
        hold(slot)
    with free_slot(tmp_path) as again:
        assert again == slot


def big(number: float) -> dict[str, Tensor]:
    """Returns more than is written without a thread and a map."""
    return {"few": torch.ones(3), "big": torch.full((3, 1 << 19), number), "a": torch.ones(5)}


def test_a_slot_stays_mapped_from_one_version_to_the_next_on_both_sides(tmp_path: Path) -> None:
    reader, places = ReadMemories(), set()
    for number in (1.0, 2.0, 3.0):
        slot, _ = put(tmp_path, big(number))
        file = Path(slot) / "model.safetensors"
        read, library = reader.tensors(file), load_file(file)
        assert read.keys() == library.keys() and all(torch.equal(read[k], library[k]) for k in library)
        assert read["big"][2, 5] == number and file.stat().st_size < STEP, "it is cut to what it holds"
        places.add(read["a"].data_ptr())
    assert len(places) == 1
    longer = {**big(4.0), "more": torch.full((1 << 20,), 5.0)}
    slot, _ = put(tmp_path, longer)
    assert torch.equal(reader.tensors(Path(slot) / "model.safetensors")["more"], longer["more"])


def test_full_shared_memory_raises_an_error_instead_of_killing_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def full(file: int, at: int, size: int) -> None:
        asked.append(size)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"), free_slot(tmp_path / "new") as slot:
        write_weights(slot, big(1.0).items(), 3, None, WrittenMemories())
    assert asked[0] > asked[1], "a little room is enough where there is not much"


def test_tensors_changed_after_the_export_are_rejected_by_name(
    store: WeightStore, model_path: Path, tmp_path: Path
) -> None:
    slot, _ = put(tmp_path, plus(model_path, 1.0))
    file = Path(slot) / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(WeightsError, match=r"tensor .* differs from what the trainer wrote"):
        store.prepare(slot, 1)


def test_some_large_tensors_are_digested_again_and_all_names_and_shapes_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot, checksum = put(tmp_path, big(1.0))
    stored, left = ReadMemories().tensors(Path(slot) / "model.safetensors"), read_digests(Path(slot))
    assert left is not None
    looked: list[str] = []
    monkeypatch.setattr(
        reading, "digest_tensors", lambda tensors, finite: looked.extend(tensors) or digest_tensors(tensors)
    )
    monkeypatch.setattr("random.random", lambda: 0.5)
    assert checksum_of(reading.proven(slot, stored, left)) == checksum and set(looked) == {"few", "a"}
    monkeypatch.setattr("random.random", lambda: 0.0)
    reading.proven(slot, stored, left)
    assert set(looked) == {"few", "a", "big"}
    for other in ({**stored, "more": torch.ones(1)}, {"few": stored["few"]}, {**stored, "a": torch.ones(6)}):
        with pytest.raises(EngineError, match="differs from what the trainer wrote"):
            reading.proven(slot, other, left)


def test_each_of_several_readers_keeps_the_slot(tmp_path: Path) -> None:
    slot, _ = put(tmp_path, {"a": torch.ones(3)})
    with ExitStack() as holders:
        for _ in range(2):
            holders.enter_context(hold(Path(slot)))
        copy_slot(Path(slot), (folder := tmp_path / "artifact", folder.mkdir())[0])
        with free_slot(tmp_path) as other:
            assert str(other) != slot
    assert not is_slot(folder) and torch.equal(load_file(folder / "model.safetensors")["a"], torch.ones(3))


class Engine:
    """Loads the requested weights from memory; `others`: it has no access to this machine's memory."""

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


def test_engines_load_memory_during_the_artifacts_write_and_switch_afterwards(tmp_path: Path) -> None:
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
