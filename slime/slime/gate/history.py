"""What the gate has seen so far, in a file: accepted changes, and rejections in a row."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from slime.gate.bounds import WINDOW
from slime.processes.records import write_json


@dataclass
class GateHistory:
    """Kept beside the checkpoints, so that a driver that starts again judges as the one before.

    Attributes:
        changes: relative changes of accepted updates, oldest first.
        in_a_row: rejections since an update was last accepted.
        unanswered: accepted updates since one was let answer to liked prompts.
        good: the newest version that was put all questions and did not fall.
        right, questions: highest share of right answers so far, and to how many questions.
    """

    changes: list[float] = field(default_factory=list)
    in_a_row: int = 0
    right: float | None = None
    questions: float | None = None
    unanswered: int = 0
    good: int | None = None

    @classmethod
    def read(cls, path: Path) -> GateHistory:
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    def best_right(self, live: dict[str, float]) -> float | None:
        """The highest share of right answers to these questions, the live weights' own included; None where nothing is
        asked. Another number of questions is another set, which begins anew."""
        if "right" not in live:
            return None
        if self.right is None or self.questions != live["questions"]:
            self.right, self.questions = live["right"], live["questions"]
        self.right = max(self.right, live["right"])
        return self.right

    def accept(self, found: dict[str, float]) -> None:
        """Takes over the measurements of an update that is live."""
        self.in_a_row = 0
        self.unanswered = 0 if found.get("looked") else self.unanswered + 1
        if "change" in found:
            self.changes = [*self.changes, found["change"]][-WINDOW:]

    def reject(self) -> None:
        self.in_a_row += 1
