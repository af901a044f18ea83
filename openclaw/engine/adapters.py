"""LoRA adapters that engines serve next to the base model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Adapter:
    """One version of a LoRA adapter.

    Attributes:
        folder: PEFT folder, which every engine must be able to read; "" for an adapter that has no version yet.
        version: None if the engine counts the versions.
        trained: whether this run trains the adapter.
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
        """Returns the JSON body of the load request for engines that do not count versions."""
        return {"lora_name": self.versioned_name, "lora_path": self.folder}

    def body(self) -> dict[str, Any]:
        """Returns the JSON body of the load request for engines that count versions. Such an engine replaces a loaded
        adapter of the same name."""
        body = {"lora_name": self.name, "lora_path": self.folder}
        return body if self.version is None else body | {"weight_version": str(self.version)}
