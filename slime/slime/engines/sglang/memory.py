"""Weights through memory shared with a process on the engine's machine and GPUs.

The process reads a bucket into shared memory (CPU) or onto each of the engine's GPUs (CUDA IPC) and passes a
handle for each rank to SGLang by the route `/update_weights_from_tensor`. It sees the same GPUs as the
engine, in the same order, so device numbers agree. While the engine loads a bucket, the next one is read.
"""

from __future__ import annotations

import base64
import io
import logging
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any, Protocol

import torch
import torch.multiprocessing
from torch import Tensor

from slime.engines.protocol import EngineControlError, HttpCall
from slime.engines.sglang.broadcast import Broadcast, SenderHandle
from slime.engines.sglang.buckets import Bucket
from slime.engines.sglang.group_calls import engine_ranks
from slime.engines.sglang.transport import Disk
from slime.errors import EngineError

logger = logging.getLogger(__name__)

METADATA_MODULE = "sglang.srt.weight_sync.tensor_bucket"


class SharerHandle(SenderHandle, Protocol):
    """A `Sharer` in another process."""

    def share(self, bucket: Bucket, ranks: int) -> Future[list[str]]: ...

    def drop(self) -> Future[None]: ...


class ThroughMemory(Broadcast):
    """The transport of an engine on the sender's machine. Tensors that cannot be loaded this way are read
    from disk."""

    sender: SharerHandle
    how = "passed through shared memory"
    ended = False  # the process died while loading a bucket

    def load(self, call: HttpCall, path: str, version: int, held: bool) -> None:
        """Loads a version; reads it from disk if the engine has exited while opening a handle."""
        if not self.ended:
            super().load(call, path, version, held)
            return
        Disk().load(call, path, version, held)
        self.sent = {str(version): path}

    @contextmanager
    def group(self, call: HttpCall) -> Iterator[str]:
        """Yields an unused name; this transport needs no group."""
        self.ranks, _ = engine_ranks(call)
        self.result(self.sender.leave())  # started before requests are paused
        try:
            yield ""
        except EngineError:
            self.sender.kill()
            raise
        with suppress(Exception):  # the weights have arrived, even if cleaning up fails
            self.sender.leave().result(self.left())

    def get_ready(self, buckets: Sequence[Bucket]) -> None:
        self.first = self.sender.share(buckets[0], self.ranks)
        self.result(self.first)

    def move(self, call: HttpCall, name: str, buckets: Sequence[Bucket]) -> None:
        shared = self.first
        for number in range(len(buckets)):
            handles = self.result(shared)
            if last := number == len(buckets) - 1:
                ahead: Future[Any] = Future()
                ahead.set_result(None)
            else:
                ahead = shared = self.sender.share(buckets[number + 1], self.ranks)
            order = take_order(handles, flush=last)
            self.together(partial(self.hand_over, call, order), ahead)
            self.result(self.sender.drop())

    def hand_over(self, call: HttpCall, order: dict[str, Any]) -> None:
        """Passes a bucket to the engine.

        If the engine does not respond at all, this transport is not used again.

        Raises:
            EngineControlError: the engine rejected the bucket or did not respond.
        """
        try:
            call("POST", "/update_weights_from_tensor", order)
        except EngineControlError as error:
            if error.status is None and not self.ended:
                self.ended = True
                logger.warning(
                    "%s exited while it loaded weights from shared memory; it reads them from disk from now on",
                    self.url,
                )
            raise


def take_order(handles: list[str], flush: bool) -> dict[str, Any]:
    """Returns the request that makes an engine load a bucket.

    `flush`: also flush the cache, with the last bucket.
    """
    return {
        "serialized_named_tensors": handles,
        "load_format": "flattened_bucket",
        "flush_cache": flush,
        "abort_all_requests": False,
    }


class Sharer:
    """Holds the bucket that an engine is loading, and the next one."""

    def __init__(self) -> None:
        # handles by file name, which any process can open
        torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.held: list[list[Tensor]] = []

    def share(self, bucket: Bucket, ranks: int) -> list[str]:
        """Returns the handles of a bucket, one for each rank of the engine.

        Raises:
            EngineError: a file cannot be read, or the engine has more ranks than this process has GPUs.
        """
        if self.device == "cuda" and ranks > torch.cuda.device_count():
            raise EngineControlError(
                f"the engine has {ranks} GPUs, but the process that sends weights has {torch.cuda.device_count()}"
            )
        if self.device == "cpu":
            flat = bucket.read("cpu")
            flat.share_memory_()  # type: ignore[no-untyped-call]
            flats = [flat] * ranks
        else:
            flat = bucket.read("cuda:0")
            flats = [flat.to(f"cuda:{rank}") for rank in range(ranks)]
            for rank in range(ranks):
                torch.cuda.synchronize(rank)
        self.held.append(flats)
        return [serialized(flat, bucket) for flat in flats]

    def drop(self) -> None:
        """Drops the oldest bucket, which the engine has loaded."""
        self.held.pop(0)

    def leave(self) -> None:
        """Frees the memory."""
        self.held.clear()
        if self.device == "cuda":
            torch.cuda.empty_cache()


@dataclass
class FlattenedTensorMetadata:
    """SGLang's class: a tensor's position in a bucket, in bytes."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    start_idx: int
    end_idx: int
    numel: int


FlattenedTensorMetadata.__module__ = METADATA_MODULE


def serialized(flat: Tensor, bucket: Bucket) -> str:
    """Returns SGLang's input in base64: `flattened_tensor` and `metadata`, pickled with torch's tensor
    sharing."""
    metadata, place = [], 0
    for entry in bucket.entries:
        end, dtype = place + entry.size, getattr(torch, entry.dtype)
        metadata.append(
            FlattenedTensorMetadata(entry.name, torch.Size(entry.shape), dtype, place, end, entry.size)
        )
        place = end
    buffer = io.BytesIO()
    with _pickled_as_sglang():
        ForkingPickler(buffer).dump({"flattened_tensor": flat, "metadata": metadata})
    return base64.b64encode(buffer.getvalue()).decode()


@contextmanager
def _pickled_as_sglang() -> Iterator[None]:
    """Makes pickle write SGLang's class name, although SGLang is not installed in this Python."""
    module = ModuleType(METADATA_MODULE)
    vars(module)["FlattenedTensorMetadata"] = FlattenedTensorMetadata
    names = [METADATA_MODULE.rsplit(".", count)[0] for count in range(METADATA_MODULE.count(".") + 1)]
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(dict.fromkeys(names, module))
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old
