"""Transfers a version to an SGLang engine while its requests are paused: from disk, or by a sender."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from slime.engines.protocol import EngineControlError, HttpCall

REFUSED = 400
LOADING = "loading"
"""Version name that an engine reports while it holds tensors of two versions."""


class HalfLoaded(EngineControlError):
    """The engine holds tensors of two versions. It stays paused, so that no request uses them."""


class Transport(Protocol):
    """Transfers a version to one engine. `held`: the engine is already paused, and stays paused afterwards."""

    def load(self, call: HttpCall, path: str, version: int, held: bool) -> None:
        """Loads a version.

        Raises:
            EngineControlError: loading failed, and the engine serves the old version.
            HalfLoaded: the engine has neither version, and is paused.
        """

    def folder_of(self, label: str, named: str) -> str:
        """Returns the folder of an engine's weights, from the version `label` and folder `named` that it
        reports."""


class Disk:
    """The engine reads the folder, which must have the same path on its machine."""

    def load(self, call: HttpCall, path: str, version: int, held: bool) -> None:
        body = {"model_path": path, "weight_version": str(version), "flush_cache": True}
        with waiting(call, held):
            answer = call("POST", "/update_weights_from_disk", body)
        if answer.get("success") is not True:
            raise EngineControlError(f"loading version {version}: {answer.get('message')}", REFUSED)

    def folder_of(self, label: str, named: str) -> str:
        return named


@contextmanager
def waiting(call: HttpCall, held: bool) -> Iterator[None]:
    """Pauses requests inside the context. None is rejected; keys and values are recomputed by the new
    weights."""
    call("POST", "/pause_generation", {"mode": "retract"})
    whole = True
    try:
        yield
    except HalfLoaded:
        whole = False
        raise
    finally:
        if whole and not held:
            call("POST", "/continue_generation", {})
