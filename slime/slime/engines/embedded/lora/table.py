"""The adapters of an engine, and which of them are in memory.

An adapter is registered with a folder and a version. At most `most` are in memory; the least recently used
one is evicted. A request for an adapter that is not in memory waits in the queue while a thread loads it. If
all are in use, the least recently requested one accepts no more requests until it is idle, so that no adapter
waits forever.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from slime.engines.embedded.lora.factors import AdapterFactors, read_factors
from slime.engines.embedded.lora.layers import AdaptedChunk, AdaptedLayers
from slime.engines.embedded.model import ServedModel
from slime.engines.embedded.step import EngineStep
from slime.engines.requests import UnknownAdapterError, WeightsError


@dataclass(frozen=True)
class RegisteredAdapter:
    """One version of an adapter: its folder, checksum and scale."""

    name: str
    version: int
    path: str
    checksum: str
    scale: float

    def holds(self, factors: AdapterFactors) -> bool:
        """Returns whether `factors` belong to this version."""
        return (self.checksum, self.scale) == (factors.checksum, factors.scale)


class DecodeLoop(Protocol):
    """The engine's functions that the table uses."""

    def between_steps(self, call: Callable[[], None]) -> None:
        """Runs `call` in the decode thread and returns when it has run."""

    def post(self, call: Callable[[], None]) -> None:
        """Like `between_steps`, without waiting."""

    def adapters_of(self, waiting: bool) -> set[str]:
        """Returns the names of the adapters of waiting, or of running, requests."""

    def adapter_replaced(self, name: str) -> None:
        """Invalidates keys and values of an earlier version."""

    def end_requests(self, name: str, reason: dict[str, object]) -> None:
        """Ends the requests of an adapter, including waiting ones."""


class AdapterTable:
    """The adapters of one engine. `register`, `unregister` and `check` are thread-safe."""

    def __init__(self, model: ServedModel, most: int, loop: DecodeLoop) -> None:
        self._model, self._most, self._loop = model, most, loop
        self._layers = AdaptedLayers(model)
        self._lock = threading.Lock()
        self._registered: dict[str, RegisteredAdapter] = {}
        # least recently requested first
        self._loaded: OrderedDict[str, AdapterFactors] = OrderedDict()
        self._loading: set[str] = set()
        self._fresh: set[str] = set()
        self._leaving: set[str] = set()
        self._reader = ThreadPoolExecutor(1, "adapters")
        self.loads = 0

    # Called by other threads.

    def check(self, name: str) -> None:
        """Raises UnknownAdapterError if there is no such adapter."""
        if name not in self._registered:
            raise UnknownAdapterError(f"lora_path: the adapter {name!r} is not loaded")

    def register(self, name: str, path: str, version: int | None = None) -> RegisteredAdapter:
        """Adds an adapter, or replaces it between two steps. Its streams continue with the new version. Can
        be repeated.

        Args:
            version: None: 0 for a new adapter; for a known one with other weights, its last version plus 1.

        Raises:
            WeightsError: the folder cannot be served, or this version number had other weights.
        """
        with self._lock:
            old = self._registered.get(name)
            factors = read_factors(path, self._model, name, 0 if version is None else version)
            if version is None:
                version = 0 if old is None else old.version + (not old.holds(factors))
                factors = replace(factors, version=version)
            new = RegisteredAdapter(name, version, path, factors.checksum, factors.scale)
            if old is not None and old.version == version and old.holds(factors):
                self._registered[name] = new
                return new
            if old is not None and old.version == version:
                raise WeightsError(
                    f"version {version} of the adapter {name!r} already has other weights: use a "
                    "higher version"
                )
            self._loop.between_steps(lambda: self._install(new, factors, known=old is not None))
            return new

    def unregister(self, name: str) -> None:
        """Removes an adapter with its keys and values, and ends its requests. Raises UnknownAdapterError."""
        with self._lock:
            self.check(name)
            self._loop.between_steps(lambda: self._forget(name))

    def listing(self) -> dict[str, dict[str, object]]:
        """Returns version, path and checksum of every adapter by name, and whether it is in memory."""
        known = dict(self._registered)
        return {
            name: {
                "weight_version": str(one.version),
                "lora_path": one.path,
                "checksum": one.checksum,
                "in_memory": name in self._loaded,
            }
            for name, one in known.items()
        }

    @property
    def nbytes(self) -> int:
        """Returns the size of the factors in memory, in bytes."""
        return sum(one.nbytes for one in list(self._loaded.values()))

    # Called by the decode thread.

    def version(self, name: str) -> int:
        return self._registered[name].version

    def knows(self, name: str) -> bool:
        return name in self._registered

    def is_ready(self, name: str) -> bool:
        """Returns whether a request of this adapter may start now; if not, starts loading it or freeing
        memory for it.

        Called only if nothing else prevents the request.
        """
        if name in self._leaving and not self._is_any_wanted():
            self._leaving.clear()
        if name in self._loaded and name not in self._leaving:
            self._loaded.move_to_end(name)
            self._fresh.discard(name)
            return True
        if name not in self._loaded and name not in self._loading and self._make_room():
            self._loading.add(name)
            one = self._registered[name]
            self._reader.submit(self._read, one)
        return False

    def begin(self, step: EngineStep) -> None:
        """Passes the adapters of a step's rows to the layers, before a forward pass."""
        self._layers.now = None
        if not self._loaded:
            return
        rows = [row.adapter for span in step.batch.decode for row in span.slab.rows]
        chunks = self._chunks(step, len(rows))
        adapters = [None if name is None else self._loaded[name] for name in rows]
        if chunks or any(adapters):
            self._layers.begin(adapters, chunks)

    def drop_all(self) -> None:
        """Frees all factors; adapters of waiting requests are loaded again."""
        self._loaded.clear()
        self._fresh.clear()
        self._leaving.clear()
        self._layers.clear()

    def _chunks(self, step: EngineStep, rows: int) -> list[AdaptedChunk]:
        chunks = []
        kept = rows
        for span, chunk in zip(step.batch.chunks, step.chunks, strict=True):
            start, end = span.start, span.start + chunk.last - chunk.first
            first = kept
            while kept < len(step.keep) and step.keep[kept] < end:
                kept += 1
            if (name := chunk.sequence.adapter) is not None:
                chunks.append(AdaptedChunk(start, end, first, kept, self._loaded[name]))
        return chunks

    def _make_room(self) -> bool:
        """Returns whether another adapter may be loaded, after evicting an idle one if necessary.

        If none is idle, one adapter accepts no more requests.
        """
        if len(self._loaded) + len(self._loading) < self._most:
            return True
        kept = self._loop.adapters_of(waiting=False) | (self._fresh & self._loop.adapters_of(waiting=True))
        idle = [name for name in self._loaded if name not in kept]
        if idle:
            victim = next((name for name in idle if name in self._leaving), idle[0])
            self._layers.release(self._loaded.pop(victim))
            self._fresh.discard(victim)
            self._leaving.clear()
            return True
        if not self._leaving:
            asked_for = (name for name in self._loaded if name not in self._fresh)
            self._leaving.update(list(asked_for)[:1])
        return False

    def _is_any_wanted(self) -> bool:
        """Returns whether a request waits for an adapter that is neither in memory nor being loaded."""
        return bool(self._loop.adapters_of(waiting=True) - self._loaded.keys() - self._loading)

    def _read(self, one: RegisteredAdapter) -> None:
        """Loads an adapter in the loading thread."""
        try:
            factors = read_factors(one.path, self._model, one.name, one.version)
            if not one.holds(factors):
                raise WeightsError(
                    f"{one.path} no longer contains version {one.version} of the adapter "
                    f"{one.name!r}: load the folder as a new version"
                )
        except WeightsError as error:
            message = str(error)
            self._loop.post(lambda: self._failed(one, message))
        except Exception as error:  # such as out of memory; the requests must not wait forever
            message = f"cannot read the adapter {one.name!r}: {error!r}"
            self._loop.post(lambda: self._failed(one, message))
        else:
            self._loop.post(lambda: self._arrived(one, factors))

    def _arrived(self, one: RegisteredAdapter, factors: AdapterFactors) -> None:
        self._loading.discard(one.name)
        if self._registered.get(one.name) == one and one.name not in self._loaded:
            self._loaded[one.name] = factors
            self._fresh.add(one.name)
            self.loads += 1

    def _failed(self, one: RegisteredAdapter, message: str) -> None:
        self._loading.discard(one.name)
        if self._registered.get(one.name) == one:
            self._loop.end_requests(one.name, {"type": "abort", "message": message, "status_code": 400})

    def _install(self, new: RegisteredAdapter, factors: AdapterFactors, known: bool) -> None:
        name = new.name
        self._registered[name] = new
        if name in self._loaded:
            self._layers.release(self._loaded[name])
            self._loaded[name] = factors
        elif len(self._loaded) + len(self._loading) < self._most:
            self._loaded[name] = factors
            self.loads += 1
        if known:
            self._loop.adapter_replaced(name)

    def _forget(self, name: str) -> None:
        del self._registered[name]
        self._loaded.pop(name, None)
        self._fresh.discard(name)
        self._leaving.discard(name)
        self._loop.end_requests(name, {"type": "abort", "message": f"the adapter {name!r} was unloaded"})
        self._loop.adapter_replaced(name)
        self._layers.clear()
