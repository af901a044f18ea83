"""The gate, in the driver: asks for measurements of a candidate and decides. Imports no torch and no Ray."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from slime.errors import EngineError
from slime.gate.bounds import largest_change
from slime.gate.history import GateHistory
from slime.gate.likelihood import LIKED, QUESTION, key, measure_likelihood, purpose
from slime.gate.limits import bad_answers, bad_likelihood
from slime.gate.sampled import Tried, measure_sampled
from slime.hooks import load_hook
from slime.types import Sample
from slime.utils.logging import event
from slime.weights.update import Candidate, CandidateRejected
from slime.weights.versions import WeightVersion

if TYPE_CHECKING:
    from slime.arguments import Arguments

logger = logging.getLogger(__name__)

FILE = "gate.json"
NEAR = 0.25
"""Share of a limit from which an update is looked at more closely."""
SLOWER = 0.5
"""What one more rejection in a row multiplies the learning rate by, from the second on."""


class Examined(Protocol):
    """The trainer, as the gate asks it: `slime.ray.train_group.TrainGroup`, or a fake of it."""

    def measure_files(self, candidate: str, live: str) -> dict[str, float]: ...
    def log_probs(self, samples: list[Sample]) -> list[list[float]]: ...
    def keep_state(self) -> None: ...
    def go_back(self) -> None: ...
    def scale_learning_rate(self, scale: float) -> None: ...


class Tries(Protocol):
    """An engine that can answer with weights that are not live: `slime.engines.client.EngineControl`."""

    def try_weights(
        self, path: str, version: int, prompts: Sequence[list[int]], max_new_tokens: int
    ) -> list[Mapping[str, Any]] | None: ...


class CandidateGate:
    """Examines candidates of one run, stage by stage, the cheap ones first.

    Without --gate it lets everything pass and keeps nothing.

    Attributes:
        known: log-probs of stored answers under the live weights, by key.
        said: what the live weights, or a version shortly before, answered, by key of the prompt.
    """

    def __init__(self, args: Arguments) -> None:
        self.args, self.on = args, args.gate
        self.path = Path(args.save) / FILE
        self.history = GateHistory.read(self.path)
        self.hook = load_hook(args, "gate_samples_path") if args.gate else None
        self.known: dict[str, list[float]] = {}
        self.said: dict[str, Tried] = {}
        self.now: dict[str, list[float]] = {}
        self.says: dict[str, Tried] = {}

    def begin(self, trainers: Examined, rollout_id: int, live: WeightVersion) -> None:
        """The trainer's present state is live: it can be gone back to, and is what candidates are compared with."""
        if not self.on:
            return
        trainers.keep_state()
        trainers.scale_learning_rate(self.scale())
        self.said = {}
        self.known = self.read(trainers, self.samples(rollout_id, live.version))

    def examine(
        self, trainers: Examined, candidate: Candidate, live: WeightVersion, engines: Sequence[Tries] = ()
    ) -> dict[str, float]:
        """Measures a candidate whose files are written, while the trainer holds its weights.

        Args:
            engines: those that may hold it beside the live weights; the first that can answers with it.

        Raises:
            CandidateRejected: with everything measured so far.
        """
        if not self.on:
            return {}
        began, found = time.monotonic(), {"rejected": 0.0}
        try:
            self.says = {}
            found |= trainers.measure_files(candidate.weights.path, live.path)
            self.check_change(found)
            samples = self.samples(candidate.rollout_id, live.version)
            self.now = self.read(trainers, samples)
            found |= measure_likelihood(samples, self.now, self.known)
            _refuse(bad_likelihood(found, self.args), "likelihood")
            if self.answers_due(found):
                self.check_answers(samples, candidate.weights, live, engines, found)
        except CandidateRejected as rejection:
            seconds = time.monotonic() - began
            rejection.measurements = {**found, **rejection.measurements, "seconds": seconds, "rejected": 1.0}
            raise
        return found | {"seconds": time.monotonic() - began}

    def check_change(self, found: dict[str, float]) -> None:
        """Raises CandidateRejected where the update moved the weights too far."""
        if "change" not in found:
            return
        most = found["most_change"] = largest_change(self.history.changes, self.args.gate_max_change)
        if not found["change"] <= most:
            moved = f"the weights changed by {found['change']:.3g} of their norm, more than {most:.3g}"
            raise CandidateRejected(moved, "files")

    def answers_due(self, found: dict[str, float]) -> bool:
        """Every so many updates, and whenever one comes near a limit of the stages before."""
        near = found.get("kl", 0.0) > NEAR * self.args.gate_max_kl
        near |= found.get("liked_loss", 0.0) > NEAR * self.args.gate_max_canary_loss
        near |= found.get("change", 0.0) > 2 * NEAR * found.get("most_change", float("inf"))
        return near or self.history.unanswered + 1 >= self.args.gate_answers_every

    def samples(self, rollout_id: int, version: int) -> list[Sample]:
        """What the hook gives to compare weights on."""
        if self.hook is None:
            return []
        given = self.hook(self.args, rollout_id, version)
        return [one if isinstance(one, Sample) else Sample.from_dict(one) for one in given]

    def read(self, trainers: Examined, samples: Sequence[Sample]) -> dict[str, list[float]]:
        """Log-probs of all stored answers under the trainer's weights, in one pass."""
        read = [sample for sample in samples if sample.response_length]
        values = trainers.log_probs(read) if read else []
        return {key(sample): list(found) for sample, found in zip(read, values, strict=True)}

    def check_answers(
        self,
        samples: Sequence[Sample],
        weights: WeightVersion,
        live: WeightVersion,
        engines: Sequence[Tries],
        found: dict[str, float],
    ) -> None:
        """Lets the candidate answer questions and the prompts of liked answers; raises CandidateRejected."""
        asked = [one for one in samples if purpose(one) in (LIKED, QUESTION)]
        if not asked:
            return
        unknown = [one for one in asked if key(one) not in self.said]
        before = self.tried(engines, live, unknown) if unknown else {}
        says = None if before is None else self.tried(engines, weights, asked)
        if says is None or before is None:
            return
        self.said |= before
        self.says = says
        wanted = [None if one.label is None else str(one.label) for one in asked]
        old = [self.said[key(one)] for one in asked]
        now = measure_sampled([says[key(one)] for one in asked], wanted, old)
        found |= now
        then = measure_sampled(old, wanted, old)
        best = self.history.best_right(then)
        _refuse(bad_answers(now, then, best, self.args), "answers")

    def tried(
        self, engines: Sequence[Tries], weights: WeightVersion, asked: Sequence[Sample]
    ) -> dict[str, Tried] | None:
        """Answers by key, of the first engine that can; None: of none. An engine that cannot read the files refuses
        them when they are to go live, so its error is left to that moment."""
        prompts = [sample.tokens[: sample.prompt_length] for sample in asked]
        for engine in engines:
            try:
                answers = engine.try_weights(
                    weights.path, weights.version, prompts, self.args.gate_answer_tokens
                )
            except EngineError as error:
                logger.warning("no answers of version %d are looked at: %s", weights.version, error)
                return None
            if answers is not None:
                found = [Tried(**answer) for answer in answers]
                return {key(sample): answer for sample, answer in zip(asked, found, strict=True)}
        return None

    def accept(self, trainers: Examined, found: dict[str, float]) -> None:
        """The candidate is live everywhere."""
        if not self.on:
            return
        slowed = self.scale() < 1
        self.history.accept(found)
        self.history.write(self.path)
        self.known, self.said = self.now, self.says or self.said
        trainers.keep_state()
        if slowed:
            trainers.scale_learning_rate(1.0)

    def reject(self, trainers: Examined, candidate: Candidate, rejection: CandidateRejected) -> None:
        """Tells the hook, then brings the trainer back to the live state. Killed in between, the same happens again:
        nothing of a rejected candidate is in a checkpoint."""
        weights = candidate.weights
        event(
            logger, "update rejected", rollout_id=candidate.rollout_id, version=weights.version,
            stage=rejection.stage, reason=str(rejection), **rejection.measurements,
        )  # fmt: skip
        if (hook := load_hook(self.args, "on_weights_rejected_path")) is not None:
            told = {
                "reason": str(rejection),
                "stage": rejection.stage,
                "measurements": rejection.measurements,
                "parent": candidate.parent,
                "checksum": weights.checksum,
            }
            hook(self.args, candidate.rollout_id, weights.version, told)
        self.history.reject()
        self.history.write(self.path)
        trainers.go_back()
        trainers.scale_learning_rate(self.scale())

    def scale(self) -> float:
        """What the learning rate is multiplied by now."""
        if self.args.gate_on_reject == "skip":
            return 1.0
        return float(SLOWER ** max(0, self.history.in_a_row - 1))


def _refuse(reason: str | None, stage: str) -> None:
    if reason is not None:
        raise CandidateRejected(reason, stage)
