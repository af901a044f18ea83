"""One candidate on its way through the gate: examined while the trainer holds it, live or undone afterwards."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
    def is_last(self, rollout_id: int) -> bool: ...
    def save(self, trainers: TrainGroup, candidate: Candidate, hold: bool = False) -> None: ...
    def put_into_force(self, candidate: Candidate) -> None: ...
    def settle(self) -> bool: ...


@dataclass
class Examination:
    """The trainer waits for the first half of it, and trains the next batch while the candidate answers questions and
    engines take it; it remembers the candidate's state beside the last live one. What is rejected then is undone by
    `Publisher.settle`, which says so: what was trained meanwhile descends from it, and is trained again. A checkpoint
    that is due is written before, and counts when the candidate has passed.

    The trainer waits for the whole where it cannot be left: a checkpoint that is written in the background or is the
    last, a lower rate to be ended, GPUs that it shares with engines.

    Args:
        due: a checkpoint is due.
        metrics: of the rollout; gets what was measured.
        make_way: called before an engine is asked to take the candidate.
        slot: where it lies in shared memory.

    Attributes:
        held: seconds by which the trainer was held up, until it might go on.
        looked: seconds of the second half.
    """

    publisher: Publishes
    trainers: TrainGroup
    candidate: Candidate
    due: bool
    metrics: dict[str, float]
    make_way: Callable[[], None]
    slot: str | None
    found: dict[str, float] = field(default_factory=dict)
    held: float = 0.0
    looked: float = 0.0

    def begin(self) -> None:
        """Returns when the trainer may go on."""
        self.began = time.monotonic()
        publisher, trainers = self.publisher, self.trainers
        self.engines, self.ahead = publisher.free_engines, self.may_go_ahead()
        try:
            self.found = publisher.gate.measure(trainers, self.candidate, publisher.live)
            if self.ahead:
                trainers.note_state()
            else:
                self.let_answer()
        except CandidateRejected as rejection:
            self.held = time.monotonic() - self.began
            self.undo(rejection)
            return
        self.held, self.looked = time.monotonic() - self.began, 0.0
        if self.ahead and self.due:
            publisher.save(trainers, self.candidate, hold=True)
        self.make_way()
        on_its_way = in_background(self.go_live, f"version {self.candidate.weights.version}")
        publisher.publication = Publication(on_its_way, self.finish)
        if not self.ahead:
            publisher.settle()

    def may_go_ahead(self) -> bool:
        """Whether the trainer may train the next batch before this candidate has passed."""
        args, publisher = self.publisher.args, self.publisher
        ends = args.async_save or publisher.is_last(self.candidate.rollout_id)
        return not (self.due and ends) and not args.colocate and publisher.gate.scale() == 1

    def let_answer(self) -> None:
        began = time.monotonic()
        try:
            gate, live = self.publisher.gate, self.publisher.live
            self.found = gate.let_answer(self.candidate, live, self.engines, self.found)
        finally:
            self.looked = time.monotonic() - began

    def go_live(self) -> None:
        if self.ahead:
            self.let_answer()
        candidate = replace(self.candidate, measurements=self.found)
        self.publisher.make_live(candidate, self.persist if self.due else lambda: None, self.slot)
        self.metrics["weights/version"] = candidate.weights.version
        self.metrics["perf/update_weights_time"] = time.monotonic() - self.began

    def persist(self) -> None:
        if self.ahead:
            self.publisher.put_into_force(self.candidate)
        else:
            self.publisher.save(self.trainers, self.candidate)

    def finish(self, rejection: CandidateRejected | None, waited: float) -> None:
        self.held += min(waited, self.looked)
        if rejection is not None:
            self.undo(rejection)
            return
        self.metrics.update(named({**self.found, "held": self.held}))
        self.publisher.gate.accept(self.trainers, self.found)

    def undo(self, rejection: CandidateRejected) -> None:
        """Its files go, the trainer goes back to the live weights; a checkpoint that is due holds these."""
        publisher, weights = self.publisher, self.candidate.weights
        self.metrics |= {"gate/rejected": 1.0, **named({**rejection.measurements, "held": self.held})}
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
