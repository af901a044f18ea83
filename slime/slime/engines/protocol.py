"""Types shared by the clients of all engines: a call, its error, and the state reported by an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from slime.errors import EngineError


class EngineControlError(EngineError):
    """An engine rejected a call or could not be reached.

    Attributes:
        status: HTTP status of a rejection; None if there was no response (a retry may help).
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class EngineInfo:
    """The weights that an engine reports as live.

    Attributes:
        checksum: checksum of the live tensors.
        max_context_length: tokens of prompt and answer; None if the engine does not report it.
        forgotten: the service that holds the weights has lost them.
    """

    version: int
    checksum: str
    model_path: str
    max_context_length: int | None
    forgotten: bool = False


class HttpCall(Protocol):
    """`call(method, path, body)` returns the JSON of a response with status 200, or raises EngineControlError."""

    def __call__(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]: ...


class ControlRoutes(Protocol):
    """Control requests to one engine."""

    def prepare(self, call: HttpCall, path: str, version: int) -> str: ...

    def switch(self, call: HttpCall, version: int) -> str: ...

    def discard(self, call: HttpCall) -> None: ...

    def info(self, call: HttpCall) -> EngineInfo: ...

    def release_memory(self, call: HttpCall) -> None: ...

    def resume_memory(self, call: HttpCall) -> None: ...
