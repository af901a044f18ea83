"""Requests that let an engine answer with weights other than the live ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TrialRequest:
    """Prompts [T] each, the folder and number of the version that answers, and the most tokens of an answer."""

    version: int
    folder: str
    prompts: list[list[int]]
    max_new_tokens: int

    def body(self) -> dict[str, Any]:
        return {
            "weight_version": str(self.version),
            "model_path": self.folder,
            "prompts": self.prompts,
            "max_new_tokens": self.max_new_tokens,
        }
