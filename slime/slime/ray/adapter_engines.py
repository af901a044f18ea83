"""One adapter of an engine, driven as the engine's weights are: prepared while the live version serves, then switched."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime.engines.client import EngineControl, EngineControlError, answer_each
from slime.weights.versions import is_adapter

NEXT, EXAMINED = "~next", "~gate"
"""After an adapter's name: its version that is prepared, or that the gate asks. No adapter of a request is called so."""
AT_ONCE = 32
"""Prompts of the gate that an engine answers at a time."""


@dataclass(frozen=True)
class AdapterState:
    """The version of an adapter that an engine serves; -1 and "" if it has none."""

    version: int
    checksum: str


class AdapterEngine:
    """The `slime.weights.engine_steps.Engine` of one adapter. Streams of the base and of other adapters do not notice
    its updates.

    Args:
        engine: serves the base.
        name: of the adapter.
    """

    def __init__(self, engine: EngineControl, name: str) -> None:
        self._engine, self._name = engine, name
        self._prepared: dict[int, str] = {}

    @property
    def url(self) -> str:
        return self._engine.url

    def prepare(self, path: str, version: int) -> str:
        """Reads the folder into the engine, where no request uses it; returns its checksum. Raises EngineControlError."""
        checksum = self._engine.load_adapter(self._name + NEXT, path, version)
        self._prepared[version] = path
        return checksum

    def switch(self, version: int) -> str:
        """The adapter's requests go on with the prepared version. Raises EngineControlError."""
        if version not in self._prepared:
            raise EngineControlError(
                f"{self.url}: version {version} of the adapter {self._name!r} is not prepared"
            )
        checksum = self._engine.load_adapter(self._name, self._prepared[version], version)
        self.discard()
        return checksum

    def discard(self) -> None:
        """Forgets prepared weights. Raises EngineControlError."""
        self._prepared.clear()
        _unload(self._engine, self._name + NEXT)

    def info(self) -> AdapterState:
        """Raises EngineControlError."""
        return _state(self._engine, self._name)


class ExaminedAdapter:
    """The `slime.gate.interruptible.Tries` of one adapter: an engine that serves the base answers with its versions."""

    def __init__(self, engine: EngineControl, name: str) -> None:
        self._engine, self._name = engine, name
        self._ended = threading.Event()

    def try_weights(
        self,
        path: str,
        version: int,
        prompts: Sequence[list[int]],
        max_new_tokens: int,
        drafts: Sequence[list[int]] = (),
        temperature: float = 0.0,
    ) -> list[Mapping[str, Any]]:
        """Answers of the version in `path`, in the order of the prompts: ids, log_probs, text, ended. A folder that holds
        no adapter is the base's.

        Args:
            drafts: not used.

        Raises:
            EngineControlError: the engine is away, it refuses the version, or `discard` was called meanwhile.
        """
        self._ended.clear()
        adapter = self._adapter(path, version)
        return answer_each(self._engine, prompts, max_new_tokens, temperature, self._ended, AT_ONCE, adapter)

    def discard(self) -> None:
        """Answers that are not there yet are given up. Raises EngineControlError."""
        self._ended.set()
        _unload(self._engine, self._name + EXAMINED)

    def _adapter(self, path: str, version: int) -> str | None:
        """The name by which the engine has this version."""
        if not is_adapter(Path(path)):
            return None
        if _state(self._engine, self._name).version == version:
            return self._name
        self._engine.load_adapter(self._name + EXAMINED, path, version)
        return self._name + EXAMINED


def forget_adapter(engine: EngineControl, name: str) -> None:
    """The engine has no version of the adapter in memory when it returns, and none of its keys and values. Raises
    EngineControlError."""
    for one in (name, name + NEXT, name + EXAMINED):
        _unload(engine, one)


def _state(engine: EngineControl, name: str) -> AdapterState:
    adapter = engine.adapters().get(name)
    if adapter is None:
        return AdapterState(-1, "")
    return AdapterState(int(adapter["weight_version"]), str(adapter["checksum"]))


def _unload(engine: EngineControl, name: str) -> None:
    if name in engine.adapters():
        engine.unload_adapter(name)
