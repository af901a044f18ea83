"""Shares a bucket of weights between two processes as --update-weight-transport tensor does; prints one JSON line.

`python -m claw_lab.long.gpu_check.ipc [--cpu]`; --cpu uses shared memory.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import pickle
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from slime.engines.sglang.buckets import plan_buckets
from slime.engines.sglang.memory import Sharer

GIB = 2**30
MODULE = "sglang.srt.weight_sync.tensor_bucket"
"""Module in which SGLang defines the class that describes a tensor of a bucket; SGLang itself is not needed."""
ANSWER_TIMEOUT = 45.0  # seconds


@dataclasses.dataclass
class FlattenedTensorMetadata:
    """SGLang's class, with the same fields."""

    name: str
    shape: Any
    dtype: Any
    start_idx: int
    end_idx: int
    numel: int


def opener(text: str, answer: Any) -> None:
    """Opens a bucket in another process, and reports its content."""
    for count in range(MODULE.count(".") + 1):
        name = MODULE.rsplit(".", count)[0]
        sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[MODULE])["FlattenedTensorMetadata"] = FlattenedTensorMetadata
    began = time.perf_counter()
    handle = pickle.loads(base64.b64decode(text))
    flat = handle["flattened_tensor"]
    opened = time.perf_counter() - began
    last = handle["metadata"][-1]
    part = flat[last.start_idx : last.end_idx].view(last.dtype).view(last.shape)
    answer.put((digest(flat), opened, str(flat.device), last.name, digest(part)))
    time.sleep(0.5)  # the sender may free its memory only after this process has released it


def digest(flat: torch.Tensor) -> str:
    return hashlib.blake2b(flat.cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def main(cpu: bool) -> None:
    size = 1 << (20 if cpu else 27)
    with tempfile.TemporaryDirectory() as folder:
        tensors = {name: torch.randn(size // 64, 64).bfloat16() for name in ("a.weight", "b.weight")}
        tensors["n"] = torch.randn(64)
        save_file(tensors, Path(folder, "model.safetensors"), metadata={"format": "pt"})
        sharer, began = Sharer(), time.perf_counter()
        if cpu:
            sharer.device = "cpu"
        [bucket] = plan_buckets(folder, 1 << 40)
        [text] = sharer.share(bucket, 1)
        shared = time.perf_counter() - began
        context = torch.multiprocessing.get_context("spawn")
        answer = context.Queue()
        child = context.Process(target=opener, args=(text, answer))
        child.start()
        theirs, opened, device, name, last = answer.get(timeout=ANSWER_TIMEOUT)
        child.join(ANSWER_TIMEOUT)
        equal = theirs == digest(sharer.held[0][0]) and last == digest(tensors[name])
        sharer.drop()
        sharer.leave()
    left = None if cpu else torch.cuda.memory_allocated()
    print(
        json.dumps(
            {
                "gib": bucket.size / GIB, "share_s": shared, "open_s": opened, "device": device, "equal": equal,
                "left_bytes": left, "child_exit": child.exitcode,
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main("--cpu" in sys.argv)
