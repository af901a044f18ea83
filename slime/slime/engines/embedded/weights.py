"""Two-phase weight updates: prepare loads and checks a folder while the live weights serve; switch makes it
live.

A switch replaces the tensor of every parameter between two decode steps; tied parameters stay one tensor.
Running requests continue: their keys and values are kept, and later tokens are sampled from the new weights.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from slime.engines.embedded.adapters import read_adapter
from slime.engines.embedded.model import ServedModel
from slime.engines.embedded.reading import ReadVersion, WeightReader, WeightSet
from slime.engines.requests import WeightsError
from slime.weights.checksum import legacy_checksum, weights_checksum
from slime.weights.versions import is_legacy_checksum


class WeightStore:
    """The live version of one model and at most one prepared version.

    Args:
        replace_weights: runs a function while no forward pass is running, and waits for it.
        cast: accept versions with another dtype; their checksum is that of the loaded weights.
    """

    def __init__(
        self,
        model: ServedModel,
        replace_weights: Callable[[Callable[[], None]], None],
        cast: bool = False,
    ) -> None:
        self._model, self._cast = model, cast
        self._read = WeightReader(model)
        self._replace_weights = replace_weights
        self._lock = threading.Lock()
        self._prepared: ReadVersion | None = None
        self._running: ReadVersion | None = None  # keeps its slot reserved
        self.live = WeightSet(-1, "", "")

    def load(self, path: str, version: int) -> WeightSet:
        """Installs the first weights, cast to the served dtype."""
        with self._lock:
            prepared = self._read.version(path, version, cast=True)
            self._install(prepared)
            return self._confirm(prepared)

    def prepare(self, path: str, version: int) -> WeightSet:
        """Loads and checks a version while the live one serves. Can be repeated. Raises WeightsError."""
        with self._lock:
            if (self.live.version, self.live.path) == (version, path):
                return self.live
            if self._prepared and (self._prepared.what.version, self._prepared.what.path) == (version, path):
                return self._prepared.what
            self._prepared = None
            self._prepared = self._read.version(path, version, cast=self._cast)
            return self._prepared.what

    def switch(self, version: int) -> WeightSet:
        """Makes the prepared version live; no-op if it already is. Raises WeightsError for any other version."""
        with self._lock:
            prepared = self._prepared
            if prepared is not None and prepared.what.version == version:
                before = self._running  # frees its memory in this thread, while the model computes
                self._replace_weights(lambda: self._install(prepared))
                self._prepared = None
                self._confirm(prepared)
                del before
            elif self.live.version != version:
                waiting = (
                    "no version is prepared" if prepared is None else f"prepared is {prepared.what.version}"
                )
                raise WeightsError(
                    f"weight_version {version} is not prepared ({waiting}; version "
                    f"{self.live.version} is live)"
                )
            return self.live

    def weights_of(self, version: int) -> ReadVersion:
        """Returns the prepared or the live version. Raises WeightsError for any other."""
        with self._lock:
            if self._prepared is not None and self._prepared.what.version == version:
                return self._prepared
            if self.live.version == version and self._running is not None:
                live = {name: tensor.data for name, tensor in self._model.tensors.items()}
                return replace(self._running, tensors=live)
        raise WeightsError(f"weight_version {version} is neither prepared nor live")

    def discard(self) -> None:
        """Discards the prepared version, if any."""
        with self._lock:
            self._prepared = None

    def _install(self, new: ReadVersion) -> None:
        for name, live in self._model.tensors.items():
            live.data = new.tensors[name].to(
                live.device
            )  # the device may have changed since they were loaded
        self._model.packed = new.packed
        self._running, self.live = new, replace(new.what, checksum="")

    def holds(self, checksum: str) -> bool:
        """Returns whether the live tensors have this checksum, also in the format of an earlier release."""
        if not is_legacy_checksum(checksum):
            return self.live.checksum == checksum
        adapter = read_adapter(self.live.path)
        return checksum == (
            legacy_checksum(self._model.tensors) if adapter is None else adapter.legacy_checksum
        )

    def _confirm(self, new: ReadVersion) -> WeightSet:
        """Records the version's checksum if the model now runs on its tensors; checked while it decodes."""
        same = all(
            live.data_ptr() == new.tensors[name].data_ptr() for name, live in self._model.tensors.items()
        )
        checksum = new.held if same else weights_checksum(self._model.tensors)
        self.live = replace(self.live, checksum=new.what.checksum if checksum == new.held else checksum)
        return self.live
