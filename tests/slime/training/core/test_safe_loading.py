"""Tests that reading a checkpoint runs no code in it."""

from __future__ import annotations

import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path, PosixPath
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint import save
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_loader import load

from slime.errors import CheckpointError
from slime.training.core.pickled import Name, Named, read_pickle
from slime.training.core.safe_loading import ALLOWED, SafePlanner, SafeReader, read_index

INDEX = "torch.distributed.checkpoint.metadata"
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
SEEN: list[str] = []
"""Audit events of Python while reading a pickle."""

watching: int | None = None
"""The watched thread; others, of earlier tests, may still run."""
KINDS = ("pickle.find_class", "exec", "os.system", "subprocess.Popen", "open", "import")


def note(event: str, arguments: tuple[object, ...]) -> None:
    if watching == threading.get_ident() and event in KINDS:
        SEEN.append(f"{event} {arguments}")


sys.addaudithook(note)


@contextmanager
def watched() -> Iterator[None]:
    """Fails if the block imports, calls or opens something."""
    global watching
    SEEN.clear()
    watching = threading.get_ident()
    try:
        yield
    finally:
        watching = None
    assert SEEN == []


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    # torch warns that only one process writes
    with pytest.warns(UserWarning):
        save(state(1.0, {"rate": 0.5, "betas": (0.9, 0.99)}), checkpoint_id=folder, no_dist=True)
    return folder


def state(value: float, options: dict[str, object]) -> dict[str, Any]:
    return {
        "model": {"w": torch.full((4, 3), value), "b": torch.full((2,), value, dtype=torch.bfloat16)},
        "optimizer": {"step": torch.tensor(value), "groups": [options]},
        "rounds": int(value),
    }


def real(folder: Path) -> Metadata:
    index = pickle.loads((folder / ".metadata").read_bytes())
    assert isinstance(index, Metadata)
    return index


def text(value: str, protocol: int) -> bytes:
    if protocol >= 4:
        return b"\x8c" + bytes([len(value)]) + value.encode()
    return b"V" + value.encode() + b"\n"


def named(module: str, name: str, protocol: int) -> bytes:
    if protocol >= 4:
        return text(module, protocol) + text(name, protocol) + b"\x93"
    return f"c{module}\n{name}\n".encode()


def head(protocol: int) -> bytes:
    return b"\x80" + bytes([protocol]) if protocol >= 2 else b""


def called(module: str, name: str, argument: str, protocol: int) -> bytes:
    return head(protocol) + named(module, name, protocol) + b"(" + text(argument, protocol) + b"tR."


REACHED = [
    ("os", "system"),
    ("posix", "system"),
    ("builtins", "eval"),
    ("builtins", "exec"),
    ("__builtin__", "eval"),
    ("builtins", "__import__"),
    ("subprocess", "check_output"),
    ("pathlib", "Path"),
    ("pathlib", "PosixPath.touch"),
    (INDEX, "os.system"),
    (INDEX, "os"),
    (INDEX, "torch"),
    (INDEX, "torch.load"),
    (INDEX, "torch.hub.os.system"),
    (INDEX, "field"),
    (INDEX, "dataclass"),
    (INDEX, "Any"),
    (INDEX, "Metadata.__init__.__globals__"),
    (INDEX, "StatefulT"),
    ("torch.distributed.checkpoint.filesystem", "pickle.loads"),
    ("torch.distributed.checkpoint.planner", "io.open"),
    ("torch.serialization", "_get_layout.__globals__"),
    ("torch.serialization", "load"),
    ("torch.storage", "_load_from_bytes"),
    ("torch", "load"),
    ("torch", "float32.is_complex"),
    ("torch", "Size.__new__"),
    ("torch.jit", "load"),
    ("numpy", "fromfile"),
    ("codecs", "open"),
    ("functools", "partial"),
    ("operator", "attrgetter"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("module", "name"), REACHED)
def test_an_index_with_unexpected_names_is_rejected(
    tmp_path: Path, module: str, name: str, protocol: int
) -> None:
    (tmp_path / ".metadata").write_bytes(called(module, name, f"touch {tmp_path}/exploded", protocol))
    with pytest.raises(CheckpointError, match="is not allowed in a checkpoint"):
        SafeReader(tmp_path).read_metadata()
    assert not (tmp_path / "exploded").exists()


OTHER_STEPS = {
    "an instance by INST": b"(S'touch'\nios\nsystem\n.",
    "an instance by OBJ": b"(cos\nsystem\nS'touch'\no.",
    "an instance with keywords": head(4) + named(INDEX, "Metadata", 4) + b")}\x92.",
    "an extension of copyreg": b"\x80\x02\x82\x01.",
    "a persistent id": b"Pos\n.",
    "a buffer": b"\x80\x05\x97.",
    "a class that is changed": head(4) + named(INDEX, "Metadata", 4) + b"N}" + text("x", 4) + b"Ns\x86b.",
    "a path whose class is changed": head(4)
    + named("pathlib", "PosixPath", 4)
    + b"N}"
    + text("open", 4)
    + b"Ns\x86b.",
    "a member of no enumeration": head(4)
    + named("builtins", "getattr", 4)
    + named(INDEX, "Metadata", 4)
    + text("__init__", 4)
    + b"\x86R.",
    "what an object makes": head(4) + named(INDEX, "Metadata", 4) + b")R)R.",
    "a far place of the memo": b"Nr\xff\xff\xff\x7f.",
    "texts of four exabytes": head(4) + b"\x8d\xff\xff\xff\xff\xff\xff\xff\x3f.",
    "a key of a million tuples": head(4) + b"})" + b"\x85" * 1_000_000 + b"Ns.",
    "a million lists": head(4) + b"]" * 1_000_000 + b".",
    "a million marks": b"(" * 1_000_000 + b".",
    "nothing": b"",
    "no end": b"N",
    "an empty stack": b".",
    "no pickle": b"\x00\x01\x02",
}


@pytest.mark.parametrize("kind", OTHER_STEPS)
def test_an_index_with_other_pickle_operations_is_rejected(tmp_path: Path, kind: str) -> None:
    before = dict(vars(Metadata)), PosixPath.open
    (tmp_path / ".metadata").write_bytes(OTHER_STEPS[kind])
    with pytest.raises(CheckpointError, match="is not a valid checkpoint index"):
        SafeReader(tmp_path).read_metadata()
    assert (dict(vars(Metadata)), PosixPath.open) == before


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    "place", ["planner_data", "storage_data", "state_dict_metadata", "storage_meta", "version", "mcore_data"]
)
def test_code_hidden_in_a_real_index_does_not_run(checkpoint: Path, tmp_path: Path, place: str) -> None:
    index = real(checkpoint)
    setattr(index, place, {"x": Bomb(tmp_path / "exploded")})
    with pytest.raises(pickle.UnpicklingError, match="is not allowed in a checkpoint"):
        read_index(pickle.dumps(index))
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("name", ["/etc/passwd", "../other", "inner/__0_0.distcp", "..", "", "a\0b"])
def test_an_index_cannot_name_files_outside_the_folder(checkpoint: Path, name: str) -> None:
    index = real(checkpoint)
    key = next(iter(index.storage_data))
    index.storage_data[key] = replace(index.storage_data[key], relative_path=name)
    with pytest.raises(pickle.UnpicklingError, match="is not a file of the checkpoint"):
        read_index(pickle.dumps(index))


@pytest.mark.parametrize(
    "change",
    [
        {"storage_data": {MetadataIndex("x"): _StorageInfo("f", -1, 2)}},
        {"storage_data": {MetadataIndex("x"): _StorageInfo("f", 1, 1 << 70)}},
        {"storage_data": {"x": _StorageInfo("f", 1, 2)}},
        {"storage_data": {MetadataIndex("x"): 7}},
        {"storage_data": None},
        {"state_dict_metadata": {1: 2}},
        {"state_dict_metadata": [1]},
    ],
)
def test_fields_of_unexpected_types_are_rejected(checkpoint: Path, change: dict[str, Any]) -> None:
    with pytest.raises(pickle.UnpicklingError, match="not a checkpoint index"):
        read_index(pickle.dumps(replace(real(checkpoint), **change)))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_real_checkpoint_is_read_with_any_pickle_protocol(checkpoint: Path, protocol: int) -> None:
    wanted = real(checkpoint)
    data = pickle.dumps(wanted, protocol)
    with watched():
        found = read_index(data)
    assert found.state_dict_metadata == wanted.state_dict_metadata
    assert found.storage_data == wanted.storage_data


def test_a_checkpoint_written_by_torch_is_restored(checkpoint: Path) -> None:
    found = state(0.0, {"rate": 0.0, "betas": ()})
    with pytest.warns(UserWarning):
        load(found, storage_reader=SafeReader(checkpoint), planner=SafePlanner(), no_dist=True)
    wanted = state(1.0, {"rate": 0.5, "betas": (0.9, 0.99)})
    assert found["optimizer"]["groups"] == wanted["optimizer"]["groups"] and found["rounds"] == 1
    assert all(torch.equal(found["model"][name], wanted["model"][name]) for name in wanted["model"])


class OtherPython(pickle.Pickler):
    """A pickler that writes members of enumerations as Python 3.11.2 does, and paths as 3.13 does."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Enum):
            return getattr, (type(value), value.name)
        return NotImplemented


@pytest.mark.parametrize("protocol", [2, 4])
def test_an_index_of_another_python_or_of_megatron_is_read(checkpoint: Path, protocol: int) -> None:
    index: Any = real(checkpoint)
    index.mcore_data = {"w": {"nd_reformulated_orig_global_shape": (4, 3)}}
    index.all_local_plans = [SavePlan([WriteItem(MetadataIndex("w"), WriteItemType.TENSOR)])]
    written = io.BytesIO()
    OtherPython(written, protocol).dump(index)
    data = written.getvalue()
    if protocol == 4:
        assert b"\x8c\x07pathlib" in data
        elsewhere = data.replace(b"\x8c\x07pathlib", b"\x8c\x0epathlib._local")
        # Frames have a length, which the longer name changes
        data = elsewhere.replace(elsewhere[2:11], b"", 1) if elsewhere[2:3] == b"\x95" else elsewhere
    assert read_index(data).state_dict_metadata == index.state_dict_metadata


def plain(value: object, depth: int = 0) -> bool:
    if depth > 20 or value is None or isinstance(value, bool | int | float | str | bytes | Name):
        return True
    if isinstance(value, Named):
        return plain(value.arguments, depth + 1) and plain(value.state, depth + 1)
    if isinstance(value, dict):
        return all(plain(key, depth + 1) and plain(one, depth + 1) for key, one in value.items())
    return type(value) in (list, tuple) and all(plain(one, depth + 1) for one in value)  # type: ignore[attr-defined]


def attempt(read: Callable[[bytes], object], data: bytes) -> object:
    with watched():
        try:
            return read(data)
        except pickle.UnpicklingError:
            return None


PIECES = [
    *(named(name.module, name.name, protocol) for name in sorted(ALLOWED)[:40] for protocol in (0, 4)),
    *(named(module, name, protocol) for module, name in REACHED for protocol in (0, 4)),
    *(
        bytes([code])
        for code in b"(.0129NQPRbcdehijloprstuq}]\x81\x82\x85\x86\x87\x88\x89\x90\x91\x92\x93\x94\x98"
    ),
    text("touch", 4),
    b"K\x01",
    b"}",
    b")",
    b"h\x00",
    b"q\x00",
]


@settings(max_examples=400)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=40), protocol=st.sampled_from(PROTOCOLS))
def test_no_malicious_pickle_runs_code(pieces: list[bytes], protocol: int) -> None:
    data = head(protocol) + b"".join(pieces) + b"."
    assert plain(attempt(lambda one: read_pickle(one, ALLOWED), data))
    assert isinstance(attempt(read_index, data), Metadata | None)


@settings(max_examples=300)
@given(data=st.data())
def test_a_damaged_index_runs_no_code(checkpoint: Path, data: st.DataObject) -> None:
    whole = bytearray((checkpoint / ".metadata").read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(whole) - 1))
        length = data.draw(st.integers(0, 4))
        whole[place : place + length] = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from(PIECES)))
    assert isinstance(attempt(read_index, bytes(whole)), Metadata | None)
