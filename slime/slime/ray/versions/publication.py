"""Makes the trainer's new version live: after an examination with --gate, otherwise immediately."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial

from slime.ray.train_group import TrainGroup
from slime.ray.versions.in_flight import VersionInFlight, VersionState
from slime.ray.versions.publisher import Publisher
from slime.weights.update import Candidate, CandidateRejected

logger = logging.getLogger(__name__)


def publish(
    publisher: Publisher,
    trainers: TrainGroup,
    version: VersionInFlight,
    release_gpus: Callable[[], None],
    now: bool = False,
) -> None:
    """Exports the trainer's weights if an update or checkpoint is due, and starts making them live.

    `VersionInFlight.settle` waits for the end; the trainer may continue when this returns. A checkpoint is
    complete before its weights go live, so that a run resumed from it serves the same weights. With --gate
    the version is examined first (`Examination`): if it is rejected, the trainer's live state is restored,
    and a checkpoint that is due contains the live weights.

    Args:
        version: the previous version is settled. Its metrics get the version number and duration.
        release_gpus: called before any request to an engine, when the weights are written or nothing is due.
        now: publish and save even if neither is due.
    """
    due = now or publisher.save_due(version.rollout_id)
    if not due and not publisher.update_due(version.rollout_id):
        version.state = VersionState.HELD
        release_gpus()
        return
    began = time.monotonic()
    number, parent = publisher.numbers.next(publisher.newest), publisher.live.version
    whole = publisher.leaves_whole(due)
    weights, slot = publisher.files.take(trainers, number, whole)
    persist = cache(partial(publisher.files.write_artifact, weights, slot))
    if due or publisher.gate.on or publisher.args.custom_update_weight_post_write_path:
        persist()
    candidate = Candidate(weights, version.rollout_id, parent, metrics=dict(version.metrics))
    version.state = VersionState.EXAMINING
    if publisher.gate.on:
        Examination(publisher, trainers, version, candidate, due, release_gpus, slot, whole).begin()
        return
    release_gpus()
    if due:
        publisher.save(trainers, candidate)

    def go_live() -> None:
        publisher.make_live(candidate, persist, slot)
        version.metrics["weights/version"] = number
        version.metrics["perf/update_weights_time"] = time.monotonic() - began

    version.go_live(go_live)


@dataclass
class Examination:
    """The gate's examination of one candidate: measured while the trainer holds it, then made live or undone.

    The trainer waits for the first half. During the second half the candidate answers questions and engines
    receive it, while the trainer trains the next batch and keeps the states of the candidate and of the live
    version. If the candidate is rejected then, `VersionInFlight.settle` undoes it and returns True: the next
    step started from the candidate and is repeated. A checkpoint that is due is written before, and becomes
    valid when the candidate has passed.

    The trainer waits for both halves if it cannot continue: for the last checkpoint or one written in the
    background, for a lower learning rate that has to end, or for GPUs shared with engines.

    Args:
        due: a checkpoint is due.
        release_gpus: called before an engine is requested to load the candidate.
        slot: the candidate's slot in shared memory.
        whole: the candidate is a full model, not only an adapter.

    Attributes:
        measurements: measurements of the gate.
        held: seconds for which the trainer waited.
        looked: duration of the second half in seconds.
    """

    publisher: Publisher
    trainers: TrainGroup
    version: VersionInFlight
    candidate: Candidate
    due: bool
    release_gpus: Callable[[], None]
    slot: str | None
    whole: bool
    measurements: dict[str, float] = field(default_factory=dict)
    held: float = 0.0
    looked: float = 0.0

    def begin(self) -> None:
        """Runs the first half; returns when the trainer may continue."""
        self.began = time.monotonic()
        publisher, trainers = self.publisher, self.trainers
        self.engines, self.ahead = publisher.free_engines, self.may_go_ahead()
        try:
            again = None if publisher.args.train_backend == "rented" else self.write_again
            self.measurements = publisher.gate.measure(trainers, self.candidate, publisher.live, again)
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
        self.release_gpus()
        self.version.go_live(self.go_live, self.finish)
        if not self.ahead:
            self.version.settle()

    def write_again(self) -> None:
        """Writes the candidate once more from the trainer's current weights."""
        files, number = self.publisher.files, self.candidate.weights.version
        weights, self.slot = files.take(self.trainers, number, self.whole)
        files.write_artifact(weights, self.slot)
        self.candidate = replace(self.candidate, weights=weights)

    def may_go_ahead(self) -> bool:
        """Returns whether the trainer may train the next batch before this candidate has passed."""
        args, publisher = self.publisher.args, self.publisher
        ends = args.async_save or publisher.is_last(self.candidate.rollout_id)
        return not (self.due and ends) and not args.colocate and publisher.gate.scale() == 1

    def let_answer(self) -> None:
        began = time.monotonic()
        try:
            gate, live = self.publisher.gate, self.publisher.live
            self.measurements = gate.let_answer(self.candidate, live, self.engines, self.measurements)
        finally:
            self.looked = time.monotonic() - began

    def go_live(self) -> None:
        if self.ahead:
            self.let_answer()
        candidate = replace(self.candidate, measurements=self.measurements)
        self.publisher.make_live(candidate, self.persist if self.due else lambda: None, self.slot)
        self.version.metrics["weights/version"] = candidate.weights.version
        self.version.metrics["perf/update_weights_time"] = time.monotonic() - self.began

    def persist(self) -> None:
        if self.ahead:
            self.publisher.activate_checkpoint(self.candidate)
        else:
            self.publisher.save(self.trainers, self.candidate)

    def finish(self, rejection: CandidateRejected | None, waited: float) -> None:
        """Accepts or undoes the candidate in the driver's loop, after its thread has ended."""
        self.held += min(waited, self.looked)
        if rejection is not None:
            self.undo(rejection)
            return
        self.version.metrics.update(named({**self.measurements, "held": self.held}))
        self.publisher.gate.accept(self.trainers, self.measurements)

    def undo(self, rejection: CandidateRejected) -> None:
        """Deletes the candidate's files and restores the trainer's live state, which a due checkpoint contains."""
        publisher, weights = self.publisher, self.candidate.weights
        self.version.state = VersionState.REJECTED
        self.version.metrics |= {
            "gate/rejected": 1.0,
            **named({**rejection.measurements, "held": self.held}),
        }
        logger.warning(
            "rejected version %d; version %d stays live: %s",
            weights.version,
            publisher.live.version,
            rejection,
        )
        publisher.newest = max(publisher.newest, weights.version)
        publisher.gate.reject(self.trainers, self.candidate, rejection)
        shutil.rmtree(weights.path, ignore_errors=True)
        self.release_gpus()
        if self.due:
            live = replace(self.candidate, weights=publisher.live, parent=publisher.live_parent)
            publisher.save(self.trainers, live)


def named(measurements: dict[str, float]) -> dict[str, float]:
    return {f"gate/{name}": value for name, value in measurements.items()}
