"""Weight versions that a rented engine can answer with: the live one, a prepared one, and those of open requests."""

from __future__ import annotations

import threading
from pathlib import Path

from slime.engines.requests import WeightsError
from slime.errors import EngineError
from slime.rented.service import FIRST_ANSWER, Sampler, Service, ServiceRefuses
from slime.rented.versions import RentedWeights, read_version


class RentedVersion:
    """One weight version and the sampler that answers with it. A request keeps the version that it started with.

    Args:
        folder: folder of the version; for the base model, the model folder.

    Attributes:
        forgotten: the service is available, but has lost this version.
    """

    forgotten = False

    def __init__(self, service: Service, number: int, folder: str, weights: RentedWeights) -> None:
        self.number, self.folder, self.weights = number, folder, weights
        self._service = service
        self._sampler: Sampler | None = None
        self._lock = threading.Lock()

    def sampler(self) -> Sampler:
        """Returns the sampler; connects at the first call. Raises ServiceAway, ServiceRefuses."""
        with self._lock:
            if self._sampler is None:
                self._sampler = self._service.sampler(self.weights.sampler)
            return self._sampler

    def connect_again(self, failed: Sampler) -> None:
        """Makes the next request connect again, unless another one has reconnected meanwhile."""
        with self._lock:
            if self._sampler is failed:
                self._sampler = None


class RentedVersions:
    """Switches versions in two phases: prepare, then switch. Thread-safe."""

    def __init__(self, service: Service, model: str) -> None:
        self.service, self.model = service, model
        self.live = RentedVersion(service, 0, "", RentedWeights(model, None))
        self._prepared: RentedVersion | None = None

    def load(self, folder: str, number: int) -> None:
        """Loads the first version. Raises ServiceAway, WeightsError."""
        version = self._open(folder, number)
        self._load_if_exclusive(version)
        self.live = version

    def prepare(self, folder: str, number: int) -> RentedVersion:
        """Returns the prepared version once the service has answered with it. Raises WeightsError, ServiceAway."""
        version = self._open(folder, number)
        if self.service.exclusive:  # loading a version is the switch
            self._prepared = version
            return version
        try:
            version.sampler().sample(FIRST_ANSWER).result()
        except ServiceRefuses as error:
            raise WeightsError(f"version {number} cannot be sampled from: {error}") from error
        self._prepared = version
        return version

    def switch(self, number: int) -> RentedVersion:
        """Makes new requests use the prepared version. Raises WeightsError, ServiceAway."""
        prepared = self._prepared
        if prepared is None or prepared.number != number:
            if self.live.number == number:
                return self.live
            raise WeightsError(f"version {number} is not prepared; version {self.live.number} is live")
        self._load_if_exclusive(prepared)
        self.live, self._prepared = prepared, None
        return self.live

    def discard(self) -> None:
        self._prepared = None

    def named(self, number: int, folder: str | None) -> RentedVersion:
        """Returns the version to test: that of a folder, the prepared or the live one. Raises WeightsError."""
        if folder is not None:
            return self._open(folder, number)
        for version in (self._prepared, self.live):
            if version is not None and version.number == number:
                return version
        raise WeightsError(f"weight_version {number} is neither prepared nor live")

    def _load_if_exclusive(self, version: RentedVersion) -> None:
        if self.service.exclusive:
            try:
                self.service.load(version.weights.sampler)
            except ServiceRefuses as error:
                raise WeightsError(f"version {version.number} cannot be loaded: {error}") from error

    def _open(self, folder: str, number: int) -> RentedVersion:
        try:
            weights = read_version(Path(folder))
        except EngineError as error:
            raise WeightsError(str(error)) from error
        if weights.model != self.model:
            raise WeightsError(
                f"{folder} is a version of {weights.model}, but this engine serves {self.model}"
            )
        return RentedVersion(self.service, number, folder, weights)
