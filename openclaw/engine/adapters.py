"""An adapter that engines serve in addition to their model: the request to load it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Adapter:
    """One version of a LoRA adapter in a folder of PEFT's, which every engine can read at this path.

    `version` None: the engine counts versions itself. `trained`: this run trains it; it has no folder before its first
    version.
    """

    name: str
    folder: str
    version: int | None = None
    trained: bool = False

    @property
    def is_base(self) -> bool:
        """Whether it changes nothing yet, so that the model itself answers."""
        return not self.folder

    @property
    def versioned_name(self) -> str:
        """For engines that do not count versions."""
        return f"{self.name}@{self.version or 0}"

    def versioned_body(self) -> dict[str, Any]:
        """As `body`, for engines that do not count versions."""
        return {"lora_name": self.versioned_name, "lora_path": self.folder}

    def body(self) -> dict[str, Any]:
        """Returns the body of the request that loads it; a name that is loaded is replaced."""
        body = {"lora_name": self.name, "lora_path": self.folder}
        return body if self.version is None else body | {"weight_version": str(self.version)}
