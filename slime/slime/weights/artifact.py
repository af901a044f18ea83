"""One version of the weights on disk, as an engine's client sees it: names, shapes, dtypes, checksums."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from slime.errors import EngineError
from slime.weights.checksum import checksum_of, legacy_checksum, without_tied_head
from slime.weights.digests import TensorDigest, digest_tensors, read_digests
from slime.weights.index import INDEX, files_of_tensors
from slime.weights.slots import is_slot
from slime.weights.versions import is_legacy_checksum

_reading = threading.Lock()


@dataclass(frozen=True)
class Artifact:
    """The contents of a folder of safetensors files.

    Attributes:
        checksum: as the trainer computes it (`slime.weights.checksum`).
        shapes: shapes by tensor name. A head that is a copy of the embedding is omitted, as in the checksum.
        digests: hex digests of the raw bytes, by tensor name.
    """

    checksum: str
    shapes: dict[str, list[int]]
    digests: dict[str, str]

    def difference(self, other: Artifact) -> str | None:
        """Returns how the tensors of `other` differ in name or shape; None if they do not."""
        missing = sorted(self.shapes.keys() - other.shapes.keys())
        extra = sorted(other.shapes.keys() - self.shapes.keys())
        if missing:
            return f"lacks {len(missing)} tensors: {', '.join(missing[:3])}"
        if extra:
            return f"has {len(extra)} additional tensors: {', '.join(extra[:3])}"
        for name, shape in self.shapes.items():
            if other.shapes[name] != shape:
                return f"has {name} with shape {other.shapes[name]}, the live weights have {shape}"
        return None

    def changed(self, other: Artifact) -> set[str]:
        """Returns the names of tensors whose values differ in `other`."""
        return {name for name, digest in self.digests.items() if other.digests.get(name) != digest}


def read_artifact(folder: str) -> Artifact:
    """Reads the artifact in a folder. The result is cached until a file changes, because several engines may request it
    at the same time.

    Shared memory is not read again: the trainer stores the digests there with the tensors.

    Raises:
        EngineError: the folder has no readable safetensors files, a shard is missing, or a value is not finite.
    """
    if is_slot(Path(folder)) and (digests := read_digests(Path(folder))) is not None:
        return artifact_of(digests)
    files = weight_files(Path(folder))
    stamps = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    with _reading:
        return _read(stamps)


@lru_cache(maxsize=4)
def _read(stamps: tuple[tuple[str, int, int], ...]) -> Artifact:
    return artifact_of(digest_tensors(_tensors(Path(file) for file, _, _ in stamps)))


def artifact_of(digests: dict[str, TensorDigest]) -> Artifact:
    """Returns the artifact of tensors with these digests."""
    counted = without_tied_head(digests)
    shapes = {name: list(one.shape) for name, one in counted.items()}
    return Artifact(checksum_of(counted), shapes, {name: one.digest for name, one in counted.items()})


def holds(folder: str, checksum: str) -> bool:
    """Returns whether the tensors in a folder have this checksum, which may be of an earlier release.

    Raises:
        EngineError: as `read_artifact`.
    """
    if is_legacy_checksum(checksum):
        return legacy_checksum(_tensors(weight_files(Path(folder)))) == checksum
    return read_artifact(folder).checksum == checksum


def _tensors(files: Iterable[Path]) -> dict[str, Tensor]:
    """Returns views of the files, which are read on access."""
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as handle:
                tensors |= {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError) as error:
            raise EngineError(f"cannot read {file}: {error}") from error
    return tensors


def weight_files(folder: Path) -> list[Path]:
    """Returns the safetensors files of a model folder. Raises EngineError if a file in its index is missing or outside
    the folder."""
    if not folder.is_dir():
        raise EngineError(f"{folder} is not a folder")
    files = sorted(folder.glob("*.safetensors"))
    if (folder / INDEX).is_file():
        try:
            files = [folder / name for name in sorted(set(files_of_tensors(folder).values()))]
        except ValueError as error:
            raise EngineError(str(error)) from error
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise EngineError(f"{folder} lacks {', '.join(missing) or 'its *.safetensors files'}")
    return files
