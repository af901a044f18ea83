"""Request for answers by a version other than the live one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TrialRequest:
    """Prompts, and the version that answers them.

    Attributes:
        version: number of the version.
        folder: folder of its weights.
        prompts: token ids [T] of each prompt.
        max_new_tokens: largest number of tokens of an answer.
    """

    version: int
    folder: str
    prompts: list[list[int]]
    max_new_tokens: int

    def body(self) -> dict[str, Any]:
        """Returns the JSON body of the request."""
        return {
            "weight_version": str(self.version),
            "model_path": self.folder,
            "prompts": self.prompts,
            "max_new_tokens": self.max_new_tokens,
        }
