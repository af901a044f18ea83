"""Reads torch's distributed checkpoints without executing code from them.

The index of a checkpoint is a pickle. It is parsed as data (`pickled.py`) and rebuilt from the fields that
reading needs, each of which is checked. Values other than tensors are read with `weights_only`.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem

from slime.errors import CheckpointError
from slime.training.core.pickled import ORDERED_DICT, Name, Named, read_pickle

DTYPES = {Name("torch", name): value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
INDEX, FILES, PLANS = (
    f"torch.distributed.checkpoint.{module}" for module in ("metadata", "filesystem", "planner")
)
SIZE, INFO = Name("torch", "Size"), Name(FILES, "_StorageInfo")
ALLOWED = frozenset(
    (
        *(
            Name(INDEX, kind)
            for kind in (
                "Metadata",
                "MetadataIndex",
                "TensorStorageMetadata",
                "BytesStorageMetadata",
                "ChunkStorageMetadata",
                "TensorProperties",
                "_MEM_FORMAT_ENCODING",
                "StorageMeta",
            )
        ),
        # Megatron-LM keeps the plans of its ranks in the index
        *(Name(PLANS, kind) for kind in ("SavePlan", "WriteItem", "WriteItemType", "TensorWriteData")),
        # Enum members, as some Python versions (3.11.2 of Debian 12) pickle them
        *(Name(module, "getattr") for module in ("builtins", "__builtin__")),
        *(Name(module, "PosixPath") for module in ("pathlib", "pathlib._local")),
        Name(FILES, "_StoragePrefix"),
        Name("torch.serialization", "_get_layout"),
        INFO,
        SIZE,
        ORDERED_DICT,
        *DTYPES,
        *(
            Name("torch", name)
            for name, value in vars(torch).items()
            if isinstance(value, torch.memory_format)
        ),
    )
)
"""Names that a checkpoint's index may contain; none of them is called."""


class SafeReader(FileSystemReader):
    """Reads the checkpoint folder `path`; executes no code from it and reads no file outside it.

    Raises:
        CheckpointError: at `read_metadata`: the index is missing, corrupt, or has unexpected contents.
    """

    index: Metadata | None = None

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        path = Path(self.path) / ".metadata"
        if self.index is None:
            try:
                self.index = read_index(path.read_bytes())
            except (OSError, pickle.UnpicklingError) as error:
                raise CheckpointError(f"{path} is not a valid checkpoint index: {error}") from error
        self.index.storage_meta = StorageMeta(load_id=self.load_id)
        return self.index


def read_index(data: bytes) -> Metadata:
    """Returns the index in `.metadata`. Raises UnpicklingError if `data` is not one."""
    try:
        fields = _fields(read_pickle(data, ALLOWED), "Metadata")
        return Metadata(
            state_dict_metadata={
                _text(name): _entry(entry) for name, entry in _pairs(fields["state_dict_metadata"])
            },
            storage_data={_key(key): _place(value) for key, value in _pairs(fields["storage_data"])},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise pickle.UnpicklingError(f"not a checkpoint index ({error})") from error


def _fields(value: object, kind: str, module: str = INDEX) -> dict[object, object]:
    """Returns the fields of an object of class `kind`."""
    if not (isinstance(value, Named) and value.kind == Name(module, kind) and isinstance(value.state, dict)):
        raise TypeError(f"not a {kind}")
    return value.state


def _pairs(value: object) -> list[tuple[object, object]]:
    if not isinstance(value, dict):
        raise TypeError("not a dictionary")
    return list(value.items())


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise TypeError("no number")
    return value


def _size(value: object) -> torch.Size:
    if not (isinstance(value, Named) and value.kind == SIZE and len(value.arguments) == 1):
        raise TypeError("no size")
    numbers = value.arguments[0]
    if not isinstance(numbers, tuple | list):
        raise TypeError("no size")
    return torch.Size([_number(number) for number in numbers])


def _entry(value: object) -> TensorStorageMetadata | BytesStorageMetadata:
    if isinstance(value, Named) and value.kind == Name(INDEX, "BytesStorageMetadata"):
        return BytesStorageMetadata()
    fields = _fields(value, "TensorStorageMetadata")
    properties, chunks = fields["properties"], fields["chunks"]
    if not (isinstance(properties, Named) and isinstance(properties.state, tuple) and properties.state):
        raise TypeError("not tensor properties")
    if not isinstance(chunks, list):
        raise TypeError("not a list of tensor chunks")
    dtype = properties.state[0]
    if not isinstance(dtype, Name):
        raise TypeError("no dtype")
    return TensorStorageMetadata(
        TensorProperties(dtype=DTYPES[dtype]), _size(fields["size"]), [_chunk(chunk) for chunk in chunks]
    )


def _chunk(value: object) -> ChunkStorageMetadata:
    fields = _fields(value, "ChunkStorageMetadata")
    return ChunkStorageMetadata(_size(fields["offsets"]), _size(fields["sizes"]))


def _key(value: object) -> MetadataIndex:
    fields = _fields(value, "MetadataIndex")
    offset, index = fields.get("offset"), fields.get("index")
    return MetadataIndex(
        _text(fields["fqn"]),
        None if offset is None else _size(offset),
        None if index is None else _number(index),
    )


def _place(value: object) -> _StorageInfo:
    """Returns a file of the folder and a byte range in it."""
    fields = _fields(value, INFO.name, INFO.module)
    name = _text(fields["relative_path"])
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a file of the checkpoint folder")
    info = _StorageInfo(name, _number(fields["offset"]), _number(fields["length"]))
    transforms = fields.get("transform_descriptors")
    if transforms is not None:
        if not isinstance(transforms, tuple | list):
            raise TypeError("transforms are not supported")
        info.transform_descriptors = [_text(transform) for transform in transforms]
    return info


class SafePlanner(DefaultLoadPlanner):
    """Loads values other than tensors as plain values."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        loaded = torch.load(value, weights_only=True)
        if self.flatten_state_dict:
            container: Any = self.original_state_dict
            path = self.mappings[name]
            for key in path[:-1]:
                container = container[key]
            container[path[-1]] = loaded
        else:
            self.state_dict[name] = loaded
