"""A LoRA adapter that engines serve next to the base model, and the request that loads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Adapter:
    """One version of a LoRA adapter in a PEFT folder, which every engine can read at this path.

    `version` None: the engine counts versions itself. `trained`: this run trains the adapter; it has no folder before
    its first version.
    """

    name: str
    folder: str
    version: int | None = None
    trained: bool = False

    @property
    def is_base(self) -> bool:
        """Returns whether the adapter has no weights yet, so that the base model answers."""
        return not self.folder

    @property
    def versioned_name(self) -> str:
        """Returns the name that includes the version, for engines that do not count versions."""
        return f"{self.name}@{self.version or 0}"

    def versioned_body(self) -> dict[str, Any]:
        """Returns `body` for engines that do not count versions: the name includes the version."""
        return {"lora_name": self.versioned_name, "lora_path": self.folder}

    def body(self) -> dict[str, Any]:
        """Returns the JSON body of the load request; a loaded adapter of the same name is replaced."""
        body = {"lora_name": self.name, "lora_path": self.folder}
        return body if self.version is None else body | {"weight_version": str(self.version)}
