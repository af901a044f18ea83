"""The gate, in the driver: requests measurements of a candidate and decides. Imports neither torch nor
Ray."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from claw_base.run_folder.orders import VersionOrders
from slime.gate.answers import STAGE as ANSWERS
from slime.gate.answers import AnswerCheck
from slime.gate.audit import Audit
from slime.gate.history import GateHistory
from slime.gate.interruptible import STAGE as ORDER
from slime.gate.interruptible import Tries, check_orders, rejection_details
from slime.gate.likelihood import WISH, key, measure_likelihood, purpose
from slime.gate.limits import bad_change, bad_likelihood, is_near, largest_kl, too_few_right
from slime.gate.trust_region import adapted_rate, shorten
from slime.hooks import load_hook
from slime.types import Sample
from slime.utils.logging import event
from slime.weights.update import Candidate, CandidateRejected
from slime.weights.versions import WeightVersion

if TYPE_CHECKING:
    from slime.flags import Arguments

logger = logging.getLogger(__name__)

FILE = "gate.json"
MOST_LEFT = 2
"""Maximum consecutive updates that may leave their answer check to the next one."""
SLOWER = 0.5
"""Factor of the learning rate for each consecutive rejection after the first."""


class Examined(Protocol):
    """The trainer's interface for the gate: `slime.ray.train_group.TrainGroup`, or a fake."""

    def measure_files(self, candidate: str, live: str) -> dict[str, float]: ...
    def log_probs(self, samples: list[Sample]) -> list[list[float]]: ...
    def keep_state(self) -> None: ...
    def go_back(self) -> None: ...
    def shrink(self, share: float) -> None: ...
    def scale_learning_rate(self, scale: float) -> None: ...


class CandidateGate:
    """Examines the candidates of a run, stage by stage, cheap stages first.

    Without --gate it accepts everything and stores nothing.

    Args:
        orders: people's orders about versions; a new one cancels an examination.

    Attributes:
        known: log-probs of stored answers under the live weights, by key.
        now: log-probs of stored answers under the candidate, by key.
        compared: samples on which the current candidate is compared.
    """

    def __init__(self, args: Arguments, orders: VersionOrders | None = None) -> None:
        self.args, self.on = args, args.gate
        self.path = Path(args.save) / FILE
        self.orders = orders
        self.ordered = orders.waiting if orders else lambda: None
        self.history = GateHistory.read(self.path)
        self.answers = AnswerCheck(args, self.history, self.ordered)
        self.audit = Audit(args, self.history, self.answers)
        self.hook = load_hook(args, "gate_samples_path") if args.gate else None
        self.known: dict[str, list[float]] = {}
        self.now: dict[str, list[float]] = {}
        self.compared: list[Sample] = []
        self.examined: tuple[list[Sample], WeightVersion, Sequence[Tries], bool] | None = None

    def watch(self) -> None:
        """Orders a rollback if the live version has become worse; called repeatedly."""
        if self.orders is not None and (reason := self.audit.collect()) is not None:
            self.order_rollback_from(self.audit.version, reason)

    def order_rollback_from(self, version: int, reason: str) -> bool:
        """Orders a rollback to the newest version known to be good; returns False if there is no other."""
        good = self.history.good
        if self.orders is None or good is None or good == version:
            return False
        self.orders.go_back(good, f"gate: {reason}")
        return True

    def miss(self, version: int | None) -> None:
        """Records that a version cannot be restored; if it was the last good one, there is none now."""
        if version is not None and version == self.history.good:
            self.history.good = None
            self.history.write(self.path)

    def begin(
        self, trainers: Examined, rollout_id: int, live: WeightVersion, engines: Sequence[Tries] = ()
    ) -> None:
        """Marks the trainer's current state as live: it can be restored, and candidates are compared with it.

        Args:
            engines: are asked all questions meanwhile, so that the first candidate need not wait for that.
        """
        if not self.on:
            return
        trainers.keep_state()
        trainers.scale_learning_rate(self.rate())
        self.answers.live_answers, self.answers.liked = {}, []
        self.audit.forget()
        samples = self.samples(rollout_id, live.version)
        self.known = self.read(trainers, samples)
        self.answers.candidate_answers = {}
        if engines:
            self.audit.begin(samples, live, engines)

    def resume(self, trainers: Examined) -> None:
        """Continues after the trainer has loaded this gate's live state again, after another policy's."""
        if self.on:
            trainers.keep_state()
            trainers.scale_learning_rate(self.rate())

    def examine(
        self,
        trainers: Examined,
        candidate: Candidate,
        live: WeightVersion,
        engines: Sequence[Tries] = (),
        write_again: Callable[[], None] | None = None,
    ) -> dict[str, float]:
        """Runs both halves of an examination and returns the measurements.

        Args:
            engines: engines that may hold the candidate in addition to the live weights; the first available
                one is used.
            write_again: see `measure`.

        Raises:
            CandidateRejected: with everything measured so far.
        """
        return self.let_answer(candidate, live, engines, self.measure(trainers, candidate, live, write_again))

    def measure(
        self,
        trainers: Examined,
        candidate: Candidate,
        live: WeightVersion,
        write_again: Callable[[], None] | None = None,
    ) -> dict[str, float]:
        """Runs the first half, while the trainer holds the written candidate: files and likelihood. Raises
        like `examine`.

        Args:
            write_again: writes the trainer's weights to the same place, after a long step was shrunk. None:
                such a step is rejected.
        """
        if not self.on:
            return {}
        with self.measuring({"rejected": 0.0}, live) as measurements:
            self.watch()
            check_orders(self.ordered)
            measurements |= trainers.measure_files(candidate.weights.path, live.path)
            too_far = bad_change(measurements, self.history.changes, self.args)
            if write_again is None:
                _refuse(too_far, "files")
            self.compared = self.samples(candidate.rollout_id, live.version)
            for name in ("teacher_kl", "taught_length"):
                if (measured := candidate.metrics.get(f"train/{name}")) is not None:
                    measurements[name] = measured
            measurements["most_kl"] = largest_kl(measurements, self.args)
            measurements |= self.compare(trainers)
            if write_again is not None and shorten(
                trainers, measurements, self.args, lambda: self.compare(trainers)
            ):
                write_again()
                measurements |= trainers.measure_files(candidate.weights.path, live.path)
            _refuse(bad_change(measurements, self.history.changes, self.args), "files")
            _refuse(bad_likelihood(measurements, self.args), "likelihood")
        return measurements

    def compare(self, trainers: Examined) -> dict[str, float]:
        """Compares likelihoods under the trainer's current weights with those under the live ones."""
        self.now = self.read(trainers, self.compared)
        return measure_likelihood(self.compared, self.now, self.known)

    def let_answer(
        self,
        candidate: Candidate,
        live: WeightVersion,
        engines: Sequence[Tries],
        measurements: dict[str, float],
    ) -> dict[str, float]:
        """Runs the second half, which needs no trainer: sampled answers. Adds to `measurements`.

        Raises like `examine`.
        """
        if not self.on:
            return {}
        with self.measuring(measurements, live) as measurements:
            self.audit.wait_for_first()
            self.watch()
            check_orders(self.ordered)
            near = is_near(measurements, self.args)
            due = self.history.suspect or self.is_due(near)
            if due or near or any(purpose(one) == WISH for one in self.compared):
                self.audit.interrupt()
            self.answers.look(
                self.compared, candidate.weights, live, engines, measurements, due or near, near
            )
            self.answers.look_at_wishes(self.compared, candidate.weights, live, engines, measurements)
            measurements["looked"] = float(due or near)
            self.watch()
            check_orders(self.ordered)
            self.examined = self.compared, candidate.weights, engines, near
        return measurements

    @contextmanager
    def measuring(self, measurements: dict[str, float], live: WeightVersion) -> Iterator[dict[str, float]]:
        """Adds the duration of its body as `seconds`; a rejection inside gets all measurements so far."""
        began, before = time.monotonic(), measurements.get("seconds", 0.0)
        try:
            yield measurements
        except CandidateRejected as rejection:
            if rejection.stage == ANSWERS:
                self.check_live(live)
            measurements["seconds"] = before + time.monotonic() - began
            rejection.measurements = {**measurements, **rejection.measurements, "rejected": 1.0}
            raise
        measurements["seconds"] = before + time.monotonic() - began

    def check_live(self, live: WeightVersion) -> None:
        """Orders a rollback if the live version became worse before this candidate did.

        That can go unnoticed if the engine failed during the audit; then no candidate would ever pass. If no
        better version is known, the live version's answers become the reference.
        """
        right = self.answers.live_right
        if right is None:
            return
        reason = too_few_right({"right": right}, self.history.right, self.args)
        if reason is None:
            return
        logger.warning(
            "the live version %d became worse, which the check after its switch missed: %s",
            live.version,
            reason,
        )
        if not self.order_rollback_from(live.version, reason):
            self.history.right = right

    def is_due(self, near: bool) -> bool:
        """Returns whether this update must answer questions.

        An update without problems leaves the engine to the running audit of the live version, and the check
        to the next update: training would otherwise wait for both.
        """
        waited = self.history.unanswered + 1 - self.args.gate_answers_every
        return waited >= (0 if near or not self.audit.busy else MOST_LEFT)

    def samples(self, rollout_id: int, version: int) -> list[Sample]:
        """Returns the hook's samples on which weights are compared."""
        if self.hook is None:
            return []
        samples = self.hook(self.args, rollout_id, version)
        return [one if isinstance(one, Sample) else Sample.from_dict(one) for one in samples]

    def read(self, trainers: Examined, samples: Sequence[Sample]) -> dict[str, list[float]]:
        """Returns log-probs of all stored answers under the trainer's weights, in one pass."""
        read = [sample for sample in samples if sample.response_length]
        values = trainers.log_probs(read) if read else []
        return {key(sample): list(row) for sample, row in zip(read, values, strict=True)}

    def accept(self, trainers: Examined, measurements: dict[str, float]) -> None:
        """Records that the candidate is live on all engines."""
        if not self.on:
            return
        before = self.rate()
        self.history.accept(measurements)
        if self.args.gate_adapt_lr:
            self.history.rate = adapted_rate(self.history.rate, measurements, self.args)
        self.known, self.answers.live_answers = (
            self.now,
            {**self.answers.live_answers, **self.answers.candidate_answers},
        )
        if self.examined is not None:
            self.audit.begin(*self.examined)
            self.examined = None
        self.history.write(self.path)
        trainers.keep_state()
        if self.rate() != before:
            trainers.scale_learning_rate(self.rate())

    def reject(self, trainers: Examined, candidate: Candidate, rejection: CandidateRejected) -> None:
        """Calls the hook, then restores the trainer's live state.

        After a kill in between, both are repeated: no checkpoint contains a rejected candidate.
        """
        weights = candidate.weights
        event(
            logger, "update rejected", rollout_id=candidate.rollout_id, version=weights.version,
            stage=rejection.stage, reason=str(rejection), **rejection.measurements,
        )  # fmt: skip
        if (hook := load_hook(self.args, "on_weights_rejected_path")) is not None:
            hook(self.args, candidate.rollout_id, weights.version, rejection_details(candidate, rejection))
        if rejection.stage != ORDER:
            self.history.reject()
            self.history.suspect |= rejection.stage == ANSWERS
        self.history.write(self.path)
        trainers.go_back()
        trainers.scale_learning_rate(self.rate())

    def rate(self) -> float:
        """Returns the current factor of the learning rate, from consecutive rejections and the KL of accepted
        updates."""
        return self.scale() * (self.history.rate if self.args.gate_adapt_lr else 1.0)

    def scale(self) -> float:
        """Returns the factor of the learning rate after consecutive rejections, until an update is accepted."""
        if self.args.gate_on_reject == "skip":
            return 1.0
        return float(SLOWER ** max(0, self.history.in_a_row - 1))


def _refuse(reason: str | None, stage: str) -> None:
    if reason is not None:
        raise CandidateRejected(reason, stage)
