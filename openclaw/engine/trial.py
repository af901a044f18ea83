"""Requests to an engine that try weights which need not be live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TrialRequest:
    """Prompts [T] each, for the weights of a version in `folder`, and the tokens of the longest answer."""

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
