"""One candidate on its way through the gate: examined while the trainer holds it, live or undone afterwards."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from slime.engines.client import EngineControl
from slime.gate.gate import CandidateGate
from slime.ray.publication import Publication, in_background
from slime.ray.train_group import TrainGroup
from slime.weights.update import Candidate, CandidateRejected
from slime.weights.versions import WeightVersion

if TYPE_CHECKING:
    from slime.arguments import Arguments

logger = logging.getLogger(__name__)


class Publishes(Protocol):
    """The publisher, as an examination asks it."""

    args: Arguments
    gate: CandidateGate
    live: WeightVersion
    live_parent: int | None
    newest: int
    publication: Publication | None

    @property
    def free_engines(self) -> Sequence[EngineControl]: ...
    def make_live(self, candidate: Candidate, persist: Callable[[], None], slot: str | None) -> None: ...
    def save(self, trainers: TrainGroup, candidate: Candidate) -> None: ...
    def settle(self) -> bool: ...


@dataclass
class Examination:
    """The trainer remembers the candidate's state beside the last live one, and goes on while engines take the candidate.
    Where one of them refuses it then, `Publisher.settle` undoes it and says so: what was trained meanwhile descends from
    it, and is trained again. With a checkpoint to be written, or a lower rate to be ended, nothing goes on meanwhile.

    Args:
        due: a checkpoint is due.
        metrics: of the rollout; gets what was measured.
        make_way: called before an engine is asked to take the candidate.
        slot: where it lies in shared memory.
    """

    publisher: Publishes
    trainers: TrainGroup
    candidate: Candidate
    due: bool
    metrics: dict[str, float]
    make_way: Callable[[], None]
    slot: str | None
    found: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        """Returns when the trainer may go on."""
        self.began = time.monotonic()
        publisher, trainers = self.publisher, self.trainers
        try:
            free = publisher.free_engines
            self.found = publisher.gate.examine(trainers, self.candidate, publisher.live, free)
        except CandidateRejected as rejection:
            self.undo(rejection)
            return
        ahead = not self.due and publisher.gate.scale() == 1
        if ahead:
            trainers.note_state()
        self.make_way()
        on_its_way = in_background(self.go_live, f"version {self.candidate.weights.version}")
        publisher.publication = Publication(on_its_way, self.finish)
        if not ahead:
            publisher.settle()

    def go_live(self) -> None:
        save = partial(self.publisher.save, self.trainers, self.candidate)
        candidate = replace(self.candidate, measurements=self.found)
        self.publisher.make_live(candidate, save if self.due else lambda: None, self.slot)
        self.metrics["weights/version"] = candidate.weights.version
        self.metrics["perf/update_weights_time"] = time.monotonic() - self.began

    def finish(self, rejection: CandidateRejected | None) -> None:
        if rejection is not None:
            self.undo(rejection)
            return
        self.metrics.update(named(self.found))
        self.publisher.gate.accept(self.trainers, self.found)

    def undo(self, rejection: CandidateRejected) -> None:
        """Its files go, the trainer goes back to the live weights; a checkpoint that is due holds these."""
        publisher, weights = self.publisher, self.candidate.weights
        self.metrics |= {"gate/rejected": 1.0, **named(rejection.measurements)}
        logger.warning(
            "version %d is rejected, version %d stays live: %s",
            weights.version,
            publisher.live.version,
            rejection,
        )
        publisher.newest = max(publisher.newest, weights.version)
        publisher.gate.reject(self.trainers, self.candidate, rejection)
        shutil.rmtree(weights.path, ignore_errors=True)
        self.make_way()
        if self.due:
            live = replace(self.candidate, weights=publisher.live, parent=publisher.live_parent)
            publisher.save(self.trainers, live)


def named(found: dict[str, float]) -> dict[str, float]:
    return {f"gate/{name}": value for name, value in found.items()}
