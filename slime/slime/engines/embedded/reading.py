"""Reads the weights of one model from a folder (full weights or an adapter) or from shared memory."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from safetensors import SafetensorError, safe_open
from torch import Tensor

from slime.engines.embedded.adapters import AdapterDelta, AdapterError, read_adapter
from slime.engines.embedded.model import ServedModel
from slime.engines.embedded.packed import packed_weights
from slime.engines.requests import WeightsError
from slime.errors import EngineError
from slime.weights.artifact import weight_files
from slime.weights.checksum import checksum_of
from slime.weights.digests import (
    NotFiniteError,
    TensorDigest,
    copy_tensor,
    digest_tensors,
    in_parallel,
    read_digests,
)
from slime.weights.mapped import ReadMemories
from slime.weights.slots import hold, is_slot

ONE_IN = 16
"""One in so many large tensors of a slot is hashed again."""
SMALL = 1 << 20
"""Tensors of a slot with fewer bytes are always hashed again."""


@dataclass(frozen=True)
class WeightSet:
    """One version: its source and the checksum of the tensors in its folder."""

    version: int
    path: str
    checksum: str


@dataclass(frozen=True)
class ReadVersion:
    """The tensors of one version.

    Attributes:
        held: checksum of `tensors`, which differs from the checksum of `what` if that is an adapter.
        slot: protects the shared memory of the tensors from being overwritten.
        packed: packed copies of linear weights, by layer (`packed.py`).
    """

    what: WeightSet
    tensors: dict[str, Tensor]
    held: str
    slot: IO[bytes] | None = None
    packed: dict[str, Tensor] = field(default_factory=dict)


class WeightReader:
    """Reads versions for one model. Shared-memory slots stay mapped between versions."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._memories = ReadMemories()

    def version(self, folder: str, version: int, cast: bool) -> ReadVersion:
        """Returns the full weights of a folder, or its adapter merged with its base model. Raises WeightsError."""
        read = self._slot(folder, version) if is_slot(Path(folder)) else self._folder(folder, version, cast)
        return replace(read, packed=packed_weights(self._model.packable, read.tensors))

    def _folder(self, folder: str, version: int, cast: bool) -> ReadVersion:
        try:
            adapter = read_adapter(folder)
        except AdapterError as error:
            raise WeightsError(str(error)) from error
        tensors, held = read_weights(folder, self._model, cast, adapter)
        return ReadVersion(
            WeightSet(version, folder, held if adapter is None else adapter.checksum), tensors, held
        )

    def _slot(self, folder: str, version: int) -> ReadVersion:
        """Returns the weights in a shared-memory slot. On a CPU the model runs on that memory without a copy.

        The trainer computed the digests from the same memory after writing it, so they are valid here too.

        Raises:
            WeightsError: like `read_weights`; also if the slot is being written, or its content has changed.
        """
        model = self._model
        try:
            slot = hold(Path(folder))
            if model.device.type != "cpu":
                tensors, held = read_weights(folder, model, cast=False)
                return ReadVersion(WeightSet(version, folder, held), tensors, held)
            stored: dict[str, Tensor] = {}
            for file in _files(Path(folder)):
                stored |= self._memories.tensors(file)
            _check(folder, stored, model, cast=False)
            digests = proven(folder, stored, read_digests(Path(folder)) or {})
        except (EngineError, SafetensorError, OSError) as error:
            raise WeightsError(str(error)) from error
        _drop_aliases(folder, stored, digests, model)
        held = checksum_of(digests)
        return ReadVersion(WeightSet(version, folder, held), stored, held, slot)


def proven(folder: str, stored: dict[str, Tensor], left: dict[str, TensorDigest]) -> dict[str, TensorDigest]:
    """Returns the trainer's digests after checking that they belong to these tensors.

    Small tensors and, at random, one in `ONE_IN` large tensors are hashed again.

    Raises:
        EngineError: a name, shape, dtype or hash differs.
    """
    for name in sorted(stored.keys() | left.keys()):
        here, there = stored.get(name), left.get(name)
        kind = None if here is None else (str(here.dtype).removeprefix("torch."), tuple(here.shape))
        if there is None or kind != (there.dtype, there.shape):
            raise EngineError(f"{folder}: tensor {name} differs from what the trainer wrote")
    chosen = {
        name: tensor
        for name, tensor in stored.items()
        if tensor.nbytes < SMALL or random.random() < 1 / ONE_IN
    }
    for name, digest in digest_tensors(chosen, finite=False).items():
        if digest != left[name]:
            raise EngineError(f"{folder}: tensor {name} differs from what the trainer wrote")
    return left


def _drop_aliases(
    folder: str, tensors: dict[str, Tensor], digests: dict[str, TensorDigest], model: ServedModel
) -> None:
    """Keeps one of each set of tied tensors. Raises WeightsError if a folder stores different values for
    them."""
    for alias, name in model.aliases.items():
        if alias in tensors and digests.pop(alias) != digests[name]:
            raise WeightsError(f"{alias} is tied to {name}, but {folder} stores different values for it")
        tensors.pop(alias, None)


def read_weights(
    folder: str, model: ServedModel, cast: bool, adapter: AdapterDelta | None = None
) -> tuple[dict[str, Tensor], str]:
    """Returns all tensors of `model` from safetensors files, copied to the model's device, and their
    checksum.

    Args:
        cast: accept other dtypes.
        adapter: read its base instead, which may have another dtype, and merge it.

    Raises:
        WeightsError: names are missing or unexpected, shapes or dtypes are wrong, values are not finite, or a
            tied tensor is stored with different values.
    """
    stored = _stored(Path(folder if adapter is None else adapter.base))
    _check(folder, stored, model, cast or adapter is not None)
    if adapter is not None and (unknown := sorted(adapter.names - stored.keys())):
        raise WeightsError(f"{folder} changes {unknown[0]}, which does not exist in its base {adapter.base}")
    tensors: dict[str, Tensor] = {}
    digests: dict[str, TensorDigest] = {}

    def read(name: str) -> None:
        try:
            tensor = stored[name] if adapter is None else adapter.applied(name, stored[name])
            expected = model.tensors[model.aliases.get(name, name)]
            copy, digests[name] = copy_tensor(tensor, expected.dtype)
            tensors[name] = copy.to(expected.device)
        except AdapterError as error:
            raise WeightsError(f"{folder}: {error}") from error
        except NotFiniteError as error:
            raise WeightsError(f"{folder}: {name} contains {error}") from error

    in_parallel(read, sorted(stored), sum(tensor.nbytes for tensor in stored.values()))
    _drop_aliases(folder, tensors, digests, model)
    return tensors, checksum_of(digests)


def _stored(folder: Path) -> dict[str, Tensor]:
    """Returns lazily loaded tensors of a folder."""
    stored: dict[str, Tensor] = {}
    for file in _files(folder):
        try:
            with safe_open(str(file), framework="pt") as handle:
                stored |= {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"cannot read {file}: {error}") from error
    return stored


def _check(folder: str, stored: dict[str, Tensor], model: ServedModel, cast: bool) -> None:
    """Raises WeightsError for names, shapes and dtypes that differ from the model's."""
    for name, tensor in stored.items():
        expected = model.tensors.get(model.aliases.get(name, name))
        if expected is None:
            raise WeightsError(f"{folder}: unexpected tensor {name}")
        if tensor.shape != expected.shape:
            raise WeightsError(
                f"{folder}: {name} has shape {list(tensor.shape)}, but the model needs {list(expected.shape)}"
            )
        if tensor.dtype != expected.dtype and not cast:
            raise WeightsError(
                f"{folder}: {name} is {tensor.dtype}, but the live weights are {expected.dtype}"
            )
    missing = sorted(model.tensors.keys() - stored.keys())
    if missing:
        raise WeightsError(f"{folder} lacks {len(missing)} tensors: {', '.join(missing[:3])}")


def _files(folder: Path) -> list[Path]:
    try:
        return weight_files(folder)
    except EngineError as error:
        raise WeightsError(str(error)) from error
