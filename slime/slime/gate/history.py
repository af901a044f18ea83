"""The gate's history, in a file: accepted changes, and consecutive rejections."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from claw_base.files import write_json
from slime.gate.limits import WINDOW
from slime.gate.paired import Outcomes, is_better

CLOSER = 4
"""Number of versions that are asked all questions after one that was worse."""


@dataclass
class GateHistory:
    """The gate's state, saved with the checkpoints, so that a restarted driver makes the same decisions.

    Attributes:
        changes: relative changes of accepted updates, oldest first.
        in_a_row: rejections since the last accepted update.
        unanswered: accepted updates since one answered liked prompts.
        good: the newest version that was asked all questions and was not worse.
        right, questions: highest share of correct answers so far, and number of questions.
        last: share of correct answers when all questions were last asked.
        closer: number of next versions that are asked all questions after their switch.
        suspect: an update was worse, and none has passed all questions since.
        rate: factor of --lr with --gate-adapt-lr.
        reference: outcomes of the reference version for candidates, by purpose ("wish", "question") and
            prompt: of the first version, or of one that was significantly better.
        known: whether each fact of the pool was answered correctly when it was first asked, by prompt.
    """

    changes: list[float] = field(default_factory=list)
    in_a_row: int = 0
    right: float | None = None
    questions: float | None = None
    unanswered: int = 0
    good: int | None = None
    last: float | None = None
    closer: int = 0
    suspect: bool = False
    rate: float = 1.0
    reference: dict[str, dict[str, bool]] = field(default_factory=dict)
    known: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> GateHistory:
        """Reads the file of any program version; missing values will be measured again."""
        if not path.exists():
            return cls()
        stored, names = json.loads(path.read_text()), {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in stored.items() if name in names})

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    def best_right(self, live: dict[str, float]) -> float | None:
        """Returns the highest share of correct answers to these questions, including the live weights'.

        None without questions. A different number of questions counts as a new set.
        """
        if "right" not in live:
            return None
        if self.right is None or self.questions != live["questions"]:
            self.right, self.questions = live["right"], live["questions"]
        self.right = max(self.right, live["right"])
        return self.right

    def compared_with(self, purpose: str, live: Outcomes) -> Outcomes:
        """Returns the reference version's outcomes; those of the live weights for prompts without older ones."""
        self.reference[purpose] = {**live, **self.reference.get(purpose, {})}
        return self.reference[purpose]

    def note_better(self, purpose: str, now: Outcomes, alarms: float) -> None:
        """Makes an accepted version that was asked everything the reference if it is significantly better."""
        if is_better(self.compared_with(purpose, now), now, alarms):
            self.reference[purpose] |= now

    def accept(self, measurements: dict[str, float]) -> None:
        """Records the measurements of an update that has gone live."""
        self.in_a_row = 0
        self.unanswered = 0 if measurements.get("looked") else self.unanswered + 1
        if "right" in measurements:
            self.suspect = False
        if "change" in measurements:
            self.changes = [*self.changes, measurements["change"]][-WINDOW:]

    def reject(self) -> None:
        self.in_a_row += 1

    def note_right(self, right: float) -> None:
        """Records the live version's share of correct answers to all questions.

        If it has dropped, the next versions are asked all questions too, because a part would not show
        whether the drop continues.
        """
        lost = self.last is not None and right < self.last
        self.closer = CLOSER if lost else max(0, self.closer - 1)
        self.last = right
