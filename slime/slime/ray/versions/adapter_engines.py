"""One adapter in an engine, updated in two phases like the engine's own weights: prepared, then switched."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime.engines.client import EngineControl, EngineControlError, answer_each
from slime.weights.versions import is_adapter

NEXT, EXAMINED = "~next", "~gate"
"""Suffixes of an adapter's name, for its prepared version and for the version that the gate tests. Requests
cannot use such names."""
CONCURRENT_PROMPTS = 32
"""Number of gate prompts that an engine answers concurrently."""


@dataclass(frozen=True)
class AdapterState:
    """The version of an adapter that an engine serves; -1 and "" if it serves none."""

    version: int
    checksum: str


class AdapterEngine:
    """Implements `slime.weights.engine_steps.Engine` for one adapter.

    Updates do not affect streams of the base model and of other adapters.

    Args:
        engine: engine that serves the base.
        name: name of the adapter.
    """

    def __init__(self, engine: EngineControl, name: str) -> None:
        self._engine, self._name = engine, name
        self._prepared: dict[int, str] = {}

    @property
    def url(self) -> str:
        return self._engine.url

    def prepare(self, path: str, version: int) -> str:
        """Loads the folder into the engine under a reserved name; returns its checksum. Raises EngineControlError."""
        checksum = self._engine.load_adapter(self._name + NEXT, path, version)
        self._prepared[version] = path
        return checksum

    def switch(self, version: int) -> str:
        """Makes requests for the adapter use the prepared version. Raises EngineControlError."""
        if version not in self._prepared:
            raise EngineControlError(
                f"{self.url}: version {version} of the adapter {self._name!r} is not prepared"
            )
        checksum = self._engine.load_adapter(self._name, self._prepared[version], version)
        self.discard()
        return checksum

    def discard(self) -> None:
        """Unloads the prepared version. Raises EngineControlError."""
        self._prepared.clear()
        _unload(self._engine, self._name + NEXT)

    def info(self) -> AdapterState:
        """Returns the version that the engine serves. Raises EngineControlError."""
        return _state(self._engine, self._name)


class ExaminedAdapter:
    """Implements `slime.gate.interruptible.Tries` for one adapter of an engine that serves the base model."""

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
        """Returns the answers of the version in `path`, in order of the prompts: ids, log_probs, text, ended.

        If the folder contains no adapter, the base model answers.

        Args:
            drafts: not used.

        Raises:
            EngineControlError: the engine is unreachable, it rejects the version, or `discard` was called
                meanwhile.
        """
        self._ended.clear()
        adapter = self._adapter(path, version)
        return answer_each(
            self._engine, prompts, max_new_tokens, temperature, self._ended, CONCURRENT_PROMPTS, adapter
        )

    def discard(self) -> None:
        """Aborts unfinished answers. Raises EngineControlError."""
        self._ended.set()
        _unload(self._engine, self._name + EXAMINED)

    def _adapter(self, path: str, version: int) -> str | None:
        """Returns the engine's name of this version; None: the base model."""
        if not is_adapter(Path(path)):
            return None
        if _state(self._engine, self._name).version == version:
            return self._name
        self._engine.load_adapter(self._name + EXAMINED, path, version)
        return self._name + EXAMINED


def forget_adapter(engine: EngineControl, name: str) -> None:
    """Unloads all versions of an adapter from the engine, with their cached keys and values.

    Raises:
        EngineControlError: the engine could not unload it.
    """
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
