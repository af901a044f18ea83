"""Data exchanged between ranks: JSON for the project's own values; pickles restricted to known classes for
torch's."""

from __future__ import annotations

import builtins
import importlib
import json
import pickle
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from slime.errors import TrainError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

CHECKPOINT = "torch.distributed.checkpoint"
KINDS = {
    f"{CHECKPOINT}.metadata": (
        "Metadata MetadataIndex TensorStorageMetadata BytesStorageMetadata ChunkStorageMetadata TensorProperties "
        "StorageMeta _MEM_FORMAT_ENCODING"
    ),
    f"{CHECKPOINT}.planner": (
        "SavePlan LoadPlan WriteItem ReadItem WriteItemType LoadItemType TensorWriteData BytesIOWriteData"
    ),
    f"{CHECKPOINT}.filesystem": "_StoragePrefix _StorageInfo",
    f"{CHECKPOINT}.storage": "WriteResult",
    f"{CHECKPOINT}.api": "CheckpointException",
    "torch": "Size",
    "torch.serialization": "_get_layout",
    "collections": "OrderedDict",
    "pathlib": "PosixPath",
    "pathlib._local": "PosixPath",
    "traceback": "StackSummary FrameSummary",
    "slime.errors": "TrainError CheckpointError",
    "claw_base.errors": "ConfigError",
}
"""Classes that ranks of one run exchange while they write and read checkpoints."""


class KnownClasses(pickle.Unpickler):
    """Unpickles objects sent by torch's collectives, and rejects unknown classes."""

    def find_class(self, module: str, name: str) -> Any:
        if name in KINDS.get(module, "").split():
            return getattr(importlib.import_module(module), name)
        if (module, name) == ("builtins", "getattr"):
            return member_of
        known_class = getattr({"torch": torch, "builtins": builtins}.get(module), name, None)
        if isinstance(known_class, torch.dtype | torch.memory_format | torch.layout) or known_class in (
            set,
            frozenset,
        ):
            return known_class
        if isinstance(known_class, type) and issubclass(known_class, Exception):
            return known_class
        if name.isidentifier() and name.endswith(("Error", "Exception", "Timeout")):
            # An error of another rank, rebuilt from its class name and message
            return type(name, (TrainError,), {})
        raise pickle.UnpicklingError(
            f"received {module}.{name} from a rank; only tensors and plain values are accepted "
            "(send JSON, or its fields)"
        )


def member_of(kind: object, name: str) -> Enum:
    """Returns the enum member of a pickled `getattr`; some Python versions (3.11.2 of Debian 12) pickle enums
    that way.

    Raises:
        UnpicklingError: it refers to something else.
    """
    if isinstance(kind, type) and issubclass(kind, Enum) and name in kind.__members__:
        return kind[name]
    raise pickle.UnpicklingError(f"received getattr({kind!r}, {name!r}) from a rank")


def only_known_classes() -> None:
    """Restricts the pickles that this process accepts from other ranks, permanently."""
    vars(distributed_c10d)["_unpickler"] = KnownClasses


def to_tensor(value: object) -> Tensor:
    """Encodes a JSON value as a tensor of bytes."""
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def to_value(text: Tensor) -> Any:
    return json.loads(text.numpy().tobytes())


def gather_values(values: Tensor, group: ProcessGroup | None = None) -> list[Tensor]:
    """Returns the flat CPU tensors of all ranks, which may differ in length, on every rank."""
    ranks = dist.get_world_size(group)
    if ranks == 1:
        return [values]
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(ranks)]
    dist.all_gather(lengths, torch.tensor([len(values)]), group)
    longest = max(int(length) for length in lengths)
    padded = torch.cat([values, values.new_zeros(longest - len(values))])
    gathered = [torch.empty_like(padded) for _ in range(ranks)]
    if longest:
        dist.all_gather(gathered, padded, group)
    return [one[: int(length)] for one, length in zip(gathered, lengths, strict=True)]


def gather_json(value: object, group: ProcessGroup | None = None) -> list[Any]:
    """Returns the JSON values of all ranks, on every rank."""
    return [to_value(text) for text in gather_values(to_tensor(value), group)]


def broadcast_json(value: object, src: int = 0, group: ProcessGroup | None = None) -> Any:
    """Returns the JSON value of rank `src` (its global number) on every rank of the group."""
    text = to_tensor(value)
    length = torch.tensor([len(text)])
    dist.broadcast(length, src, group)
    if dist.get_rank() != src:
        text = torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(text, src, group)
    return to_value(text)


def send_json(value: object, dst: int, group: ProcessGroup | None = None) -> None:
    text = to_tensor(value)
    dist.send(torch.tensor([len(text)]), dst, group)
    dist.send(text, dst, group)


def receive_json(src: int, group: ProcessGroup | None = None) -> Any:
    length = torch.zeros(1, dtype=torch.int64)
    dist.recv(length, src, group)
    text = torch.empty(int(length), dtype=torch.uint8)
    dist.recv(text, src, group)
    return to_value(text)
