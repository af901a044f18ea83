"""The steps of a weight update on one engine. Each step may be repeated."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from slime.errors import EngineError
from slime.weights.versions import WeightVersion

logger = logging.getLogger(__name__)


class EngineState(Protocol):
    """The weights that an engine reports."""

    @property
    def version(self) -> int: ...
    @property
    def checksum(self) -> str: ...


class Engine(Protocol):
    """The control interface of one engine: `slime.engines.client.EngineControl`, or a test double."""

    @property
    def url(self) -> str: ...
    def prepare(self, path: str, version: int) -> str: ...
    def switch(self, version: int) -> Any: ...
    def discard(self) -> Any: ...
    def info(self) -> EngineState: ...


class WrongWeights(EngineError):
    """An engine loaded weights that differ from those of the trainer; a retry would not help."""


def is_reachable(engine: Engine) -> bool:
    """Returns whether the engine is reachable."""
    try:
        engine.info()
    except EngineError:
        return False
    return True


def serves(engine: Engine, version: WeightVersion) -> bool:
    """Returns whether the engine serves this version with the same checksum. Raises EngineError."""
    state = engine.info()
    return state.version == version.version and state.checksum == version.checksum


def prepare(engine: Engine, new: WeightVersion) -> None:
    """Makes the engine load the artifact while it serves the live weights, and compares its checksum with the
    trainer's."""
    if serves(engine, new):
        return
    checksum = engine.prepare(new.path, new.version)
    if checksum != new.checksum:
        raise WrongWeights(
            f"{engine.url} read version {new.version} with checksum {checksum}, the trainer wrote "
            f"{new.checksum}: {new.path} was changed, or the engine has another dtype than the trainer"
        )


def prepares_from_memory(engine: Engine, new: WeightVersion) -> bool:
    """Returns whether the engine could prepare a version from shared memory; logs the reason if not."""
    try:
        prepare(engine, new)
    except EngineError as error:
        logger.warning(
            "%s cannot load version %d from shared memory and loads it from disk: %s",
            engine.url,
            new.version,
            error,
        )
        return False
    return True


def go_live(engine: Engine, new: WeightVersion) -> None:
    """Switches the engine to the version and verifies it. If the engine has restarted since it was prepared, prepares
    it again."""
    if serves(engine, new):
        return
    try:
        engine.switch(new.version)
    except EngineError:
        prepare(engine, new)
        engine.switch(new.version)
    if not serves(engine, new):
        raise EngineError(
            f"{engine.url} was asked to switch to version {new.version}, but reports that it serves another one"
        )


def discard(engine: Engine) -> None:
    try:
        engine.discard()
    except EngineError as error:
        logger.warning("%s keeps prepared weights: %s", engine.url, error)
