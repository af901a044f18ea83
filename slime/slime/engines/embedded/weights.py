"""Weights in two phases: prepare reads and checks a folder beside the live weights, switch makes it live.

A switch replaces what every parameter points to, between two decode steps; tied parameters are one object and
stay tied. Nothing that is running is dropped: stored keys and values stay, later tokens come from the new
weights.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from safetensors import SafetensorError, safe_open
from torch import Tensor

from slime.engines.embedded.adapters import AdapterDelta, AdapterError, read_adapter
from slime.engines.embedded.model import ServedModel
from slime.engines.requests import WeightsError
from slime.errors import EngineError
from slime.weights.checksum import checksum_of, checksum_of_before, weights_checksum
from slime.weights.digests import NotFiniteError, TensorDigest, copy_tensor, digest_tensors, in_parallel
from slime.weights.slots import hold, is_slot
from slime.weights.versions import is_of_before


@dataclass(frozen=True)
class WeightSet:
    """One version: where it came from and the checksum of the tensors in its folder."""

    version: int
    path: str
    checksum: str


@dataclass(frozen=True)
class _Version:
    """`held`: checksum of `tensors`, which are those of `what` unless that is an adapter. `slot`: keeps the
    memory in which they lie, where it is shared, from being written over."""

    what: WeightSet
    tensors: dict[str, Tensor]
    held: str
    slot: IO[bytes] | None = None


class WeightStore:
    """The live version of one model and at most one prepared version.

    `replace_weights` runs a function while no forward pass is running and returns when it has.
    """

    def __init__(self, model: ServedModel, replace_weights: Callable[[Callable[[], None]], None]) -> None:
        self._model = model
        self._replace_weights = replace_weights
        self._lock = threading.Lock()
        self._prepared: _Version | None = None
        self._running: _Version | None = None  # keeps its slot
        self.live = WeightSet(-1, "", "")

    def load(self, path: str, version: int) -> WeightSet:
        """Install the first weights, cast to the served dtype."""
        with self._lock:
            found = read_version(path, version, self._model, cast=True)
            self._install(found)
            return self._confirm(found)

    def prepare(self, path: str, version: int) -> WeightSet:
        """Read and check a version beside the live one. Repeating it is harmless. Raises WeightsError."""
        with self._lock:
            if (self.live.version, self.live.path) == (version, path):
                return self.live
            if self._prepared and (self._prepared.what.version, self._prepared.what.path) == (version, path):
                return self._prepared.what
            self._prepared = None
            self._prepared = read_version(path, version, self._model, cast=False)
            return self._prepared.what

    def switch(self, version: int) -> WeightSet:
        """Make the prepared version live; harmless if it already is. Raises WeightsError if neither."""
        with self._lock:
            prepared = self._prepared
            if prepared is not None and prepared.what.version == version:
                before = self._running  # gives its memory back in this thread, while the model computes
                self._replace_weights(lambda: self._install(prepared))
                self._prepared = None
                self._confirm(prepared)
                del before
            elif self.live.version != version:
                waiting = (
                    "nothing is prepared" if prepared is None else f"prepared is {prepared.what.version}"
                )
                raise WeightsError(
                    f"weight_version {version} is not prepared ({waiting}, live is {self.live.version})"
                )
            return self.live

    def tensors_of(self, version: int) -> dict[str, Tensor]:
        """Those of the prepared version, or of the live one. Raises WeightsError for any other."""
        with self._lock:
            if self._prepared is not None and self._prepared.what.version == version:
                return self._prepared.tensors
            if self.live.version == version:
                return {name: tensor.data for name, tensor in self._model.tensors.items()}
        raise WeightsError(f"weight_version {version} is neither prepared nor live")

    def discard(self) -> None:
        """Forget the prepared version, if any."""
        with self._lock:
            self._prepared = None

    def _install(self, new: _Version) -> None:
        for name, live in self._model.tensors.items():
            live.data = new.tensors[name].to(live.device)  # which may have moved since they were read
        self._running, self.live = new, replace(new.what, checksum="")

    def holds(self, checksum: str) -> bool:
        """Whether the live tensors are those that a checksum promises, also one that an earlier release computed."""
        if not is_of_before(checksum):
            return self.live.checksum == checksum
        adapter = read_adapter(self.live.path)
        return checksum == (
            checksum_of_before(self._model.tensors) if adapter is None else adapter.checksum_of_before
        )

    def _confirm(self, new: _Version) -> WeightSet:
        """Names the version's checksum if the model now runs on its tensors, looked at while it decodes."""
        same = all(
            live.data_ptr() == new.tensors[name].data_ptr() for name, live in self._model.tensors.items()
        )
        found = new.held if same else weights_checksum(self._model.tensors)
        self.live = replace(self.live, checksum=new.what.checksum if found == new.held else found)
        return self.live


def read_version(folder: str, version: int, model: ServedModel, cast: bool) -> _Version:
    """The whole weights of a folder, or its adapter merged into the base that it names. Raises WeightsError."""
    if is_slot(Path(folder)):
        return read_slot(folder, version, model)
    try:
        adapter = read_adapter(folder)
    except AdapterError as error:
        raise WeightsError(str(error)) from error
    tensors, held = read_weights(folder, model, cast, adapter)
    return _Version(WeightSet(version, folder, held if adapter is None else adapter.checksum), tensors, held)


def read_slot(folder: str, version: int, model: ServedModel) -> _Version:
    """The weights in a slot of shared memory. On a CPU the model will run on that memory; nothing is copied.

    Raises:
        WeightsError: as `read_weights`, or the slot is being written.
    """
    try:
        slot = hold(Path(folder))
        if model.device.type != "cpu":
            tensors, held = read_weights(folder, model, cast=False)
            return _Version(WeightSet(version, folder, held), tensors, held)
        stored = _stored(Path(folder))
        _check(folder, stored, model, cast=False)
        digests = digest_tensors(stored)
    except EngineError as error:
        raise WeightsError(str(error)) from error
    _drop_aliases(folder, stored, digests, model)
    held = checksum_of(digests)
    return _Version(WeightSet(version, folder, held), stored, held, slot)


def _drop_aliases(
    folder: str, tensors: dict[str, Tensor], digests: dict[str, TensorDigest], model: ServedModel
) -> None:
    """Leaves each tied tensor once. Raises WeightsError where a folder stores two of them with other values."""
    for alias, name in model.aliases.items():
        if alias in tensors and digests.pop(alias) != digests[name]:
            raise WeightsError(f"{alias} is tied to {name} but {folder} stores other values for it")
        tensors.pop(alias, None)


def read_weights(
    folder: str, model: ServedModel, cast: bool, adapter: AdapterDelta | None = None
) -> tuple[dict[str, Tensor], str]:
    """All tensors of `model` from the folder's safetensors files, as copies on the model's device, and their checksum.

    Args:
        adapter: read its base instead, which may have another dtype, and merge it.

    Raises WeightsError for missing or unexpected names, wrong shapes or dtypes (unless `cast`), values that
    are not finite, and a tied tensor that is stored apart with other values.
    """
    stored = _stored(Path(folder if adapter is None else adapter.base))
    _check(folder, stored, model, cast or adapter is not None)
    if adapter is not None and (unknown := sorted(adapter.names - stored.keys())):
        raise WeightsError(f"{folder} changes {unknown[0]}, which its base {adapter.base} does not have")
    found: dict[str, Tensor] = {}
    digests: dict[str, TensorDigest] = {}

    def read(name: str) -> None:
        try:
            tensor = stored[name] if adapter is None else adapter.applied(name, stored[name])
            expected = model.tensors[model.aliases.get(name, name)]
            copy, digests[name] = copy_tensor(tensor, expected.dtype)
            found[name] = copy.to(expected.device)
        except AdapterError as error:
            raise WeightsError(f"{folder}: {error}") from error
        except NotFiniteError as error:
            raise WeightsError(f"{name} holds {error}") from error

    in_parallel(read, sorted(stored), sum(tensor.nbytes for tensor in stored.values()))
    _drop_aliases(folder, found, digests, model)
    return found, checksum_of(digests)


def _stored(folder: Path) -> dict[str, Tensor]:
    """Views of a folder's tensors, which are read when they are looked at."""
    stored: dict[str, Tensor] = {}
    for file in _files(folder):
        try:
            with safe_open(str(file), framework="pt") as handle:
                stored |= {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"cannot read {file}: {error}") from error
    return stored


def _check(folder: str, stored: dict[str, Tensor], model: ServedModel, cast: bool) -> None:
    """Raises WeightsError for names, shapes and dtypes that are not the model's."""
    for name, tensor in stored.items():
        expected = model.tensors.get(model.aliases.get(name, name))
        if expected is None:
            raise WeightsError(f"unexpected tensor {name}")
        if tensor.shape != expected.shape:
            raise WeightsError(
                f"{name} has shape {list(tensor.shape)}, the model needs {list(expected.shape)}"
            )
        if tensor.dtype != expected.dtype and not cast:
            raise WeightsError(f"{name} is {tensor.dtype}, the live weights are {expected.dtype}")
    missing = sorted(model.tensors.keys() - stored.keys())
    if missing:
        raise WeightsError(f"{folder} lacks {len(missing)} tensors: {', '.join(missing[:3])}")


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise WeightsError(f"{folder} is not a folder")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return [folder / name for name in sorted(names)]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise WeightsError(f"{folder} has no *.safetensors file")
    return files
