"""Reads torch's distributed checkpoints without running code that somebody may have put into them.

Their index is a pickle, and values that are no tensors are pickles too. Here the index may name only the
classes that an index is made of, and values are read with `weights_only`.
"""

from __future__ import annotations

import io
import pickle
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem

from slime.errors import CheckpointError

ALLOWED_MODULES = ("torch.distributed.checkpoint.metadata",)
PLANS = ("SavePlan", "WriteItem", "WriteItemType", "TensorWriteData")  # which Megatron-LM keeps in its index
ALLOWED_NAMES = {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("pathlib", "PosixPath"),
    ("collections", "OrderedDict"),
    *(("torch.distributed.checkpoint.planner", name) for name in PLANS),
}


class IndexUnpickler(pickle.Unpickler):
    """Knows the classes of an index and no others."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return member_of
        if module in ALLOWED_MODULES or (module, name) in ALLOWED_NAMES:
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype | torch.memory_format):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a checkpoint")


def member_of(kind: object, name: str) -> Enum:
    """What `getattr` stands for in an index: some Pythons (3.11.2 of Debian 12) write a member of an enumeration so.

    Raises:
        UnpicklingError: it stands for something else.
    """
    if isinstance(kind, type) and issubclass(kind, Enum) and name in kind.__members__:
        return kind[name]
    raise pickle.UnpicklingError(f"getattr({kind!r}, {name!r}) does not belong into a checkpoint")


class SafeReader(FileSystemReader):
    """A reader of the folder `path` that runs no code from it.

    Raises (at `read_metadata`):
        CheckpointError: the index is missing, broken, or holds what an index does not.
    """

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        path = Path(self.path) / ".metadata"
        try:
            metadata = IndexUnpickler(io.BytesIO(path.read_bytes())).load()
        except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError) as error:
            raise CheckpointError(f"{path} cannot be read as the index of a checkpoint: {error}") from error
        if not isinstance(metadata, Metadata):
            raise CheckpointError(f"{path} is not the index of a checkpoint")
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class SafePlanner(DefaultLoadPlanner):
    """Values that are no tensors are read as plain values."""

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
