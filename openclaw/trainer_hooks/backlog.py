"""Whether collecting, judging and training keep up with one another: seen in the rollout buffer, said once each time."""

from __future__ import annotations

import time
from dataclasses import dataclass

FULL_BATCHES = 4
"""Batches of ready samples from which the trainer counts as behind."""
REPEAT_SECONDS = 600.0


@dataclass(frozen=True)
class Backlog:
    """Counts of one moment: `ready` samples to train, `answered` turns without a judgement, `batch` samples a step."""

    ready: int
    answered: int
    batch: int

    def advice(self) -> dict[str, str]:
        """What falls behind, each with the flag to change; empty while all keep up."""
        found = {}
        if self.ready >= FULL_BATCHES * self.batch:
            found["trainer"] = (
                f"training falls behind: {self.ready} samples are ready, {self.ready // self.batch} batches. A larger "
                "--rollout-batch-size or --catch-up-batch-size trains more of them a step; more training GPUs "
                "(ACTOR_GPUS), a larger --max-tokens-per-gpu or LoRA make a step faster; --max-staleness drops what is "
                "too old"
            )
        if self.answered >= FULL_BATCHES * self.batch:
            found["judge"] = (
                f"judging falls behind: {self.answered} answered turns wait. More --num-judge-workers (at once, "
                "without a restart: PUT /admin/judges) or --judge-concurrency, more judge GPUs (PRM_GPUS), or fewer "
                "votes (--prm-m)"
            )
        return found


class BacklogWatch:
    """Says what is new: each kind when it begins, then every `REPEAT_SECONDS` while it lasts."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def news(self, backlog: Backlog, now: float | None = None) -> list[str]:
        """The lines to log. `now`: seconds of a clock that never goes back."""
        now = time.monotonic() if now is None else now
        advice = backlog.advice()
        self._said = {kind: at for kind, at in self._said.items() if kind in advice}
        due = [kind for kind in advice if now - self._said.get(kind, float("-inf")) >= REPEAT_SECONDS]
        self._said |= dict.fromkeys(due, now)
        return [advice[kind] for kind in due]
