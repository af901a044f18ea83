"""One version of the weights on disk, as the client of an engine sees it: names, shapes, dtypes, checksums."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from slime.errors import EngineError
from slime.weights.checksum import LM_HEAD, is_tied, weights_checksum

_reading = threading.Lock()


@dataclass(frozen=True)
class Artifact:
    """What a folder of safetensors files holds.

    Attributes:
        checksum: as the trainer computes it (`slime.weights.checksum`).
        shapes: by tensor name. A head that is only a copy of the embedding is left out, as in the checksum.
        digests: hex digest of the raw bytes by tensor name.
    """

    checksum: str
    shapes: dict[str, list[int]]
    digests: dict[str, str]

    def difference(self, other: Artifact) -> str | None:
        """How the tensors of `other` differ in name or shape; None if they do not."""
        lacking = sorted(self.shapes.keys() - other.shapes.keys())
        extra = sorted(other.shapes.keys() - self.shapes.keys())
        if lacking:
            return f"lacks {len(lacking)} tensors: {', '.join(lacking[:3])}"
        if extra:
            return f"has {len(extra)} tensors more: {', '.join(extra[:3])}"
        for name, shape in self.shapes.items():
            if other.shapes[name] != shape:
                return f"has {name} with shape {other.shapes[name]}, the live weights have {shape}"
        return None

    def changed(self, other: Artifact) -> set[str]:
        """Names of the tensors whose values differ in `other`."""
        return {name for name, digest in self.digests.items() if other.digests.get(name) != digest}


def read_artifact(folder: str) -> Artifact:
    """Reads the folder once, and again only if its files changed; several engines ask at the same time.

    Raises:
        EngineError: not a folder of readable safetensors files, a shard missing, or a value that is not finite.
    """
    files = weight_files(Path(folder))
    stamps = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    with _reading:
        return _read(stamps)


@lru_cache(maxsize=4)
def _read(stamps: tuple[tuple[str, int, int], ...]) -> Artifact:
    tensors: dict[str, Tensor] = {}
    for file, _, _ in stamps:
        try:
            with safe_open(file, framework="pt") as handle:
                tensors |= {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError) as error:
            raise EngineError(f"cannot read {file}: {error}") from error
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            raise EngineError(f"{name} holds values that are not finite")
    digests = {name: _digest(tensor) for name, tensor in tensors.items()}
    if is_tied(tensors):
        del digests[LM_HEAD]
    shapes = {name: list(tensors[name].shape) for name in digests}
    return Artifact(weights_checksum(tensors), shapes, digests)


def _is_finite(tensor: Tensor) -> bool:
    """One pass without a mask as large as the tensor; NaN is a least value too."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    return all(math.isfinite(end) for end in tensor.aminmax())


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data).hexdigest()


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder. Raises EngineError where one that its index names is missing."""
    if not folder.is_dir():
        raise EngineError(f"{folder} is not a folder")
    index = folder / "model.safetensors.index.json"
    files = sorted(folder.glob("*.safetensors"))
    if index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        files = [folder / name for name in sorted(names)]
    lacking = [file.name for file in files if not file.is_file()]
    if lacking or not files:
        raise EngineError(f"{folder} lacks {', '.join(lacking) or 'its *.safetensors files'}")
    return files
